"""Models of Adams."""
