"""From parts to equations: mass matrix, forces, constraint rows, coordinates."""
