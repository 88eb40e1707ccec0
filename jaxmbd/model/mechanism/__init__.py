"""The mechanism: named parts, checked as a whole, its spanning tree and coordinates by name."""
