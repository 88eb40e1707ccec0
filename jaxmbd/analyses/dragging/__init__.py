"""A mechanism that is led by hand: positions that follow a point or a coordinate, and paths through all positions."""
