"""NumPy code of traced functions: what runs before anything is compiled."""
