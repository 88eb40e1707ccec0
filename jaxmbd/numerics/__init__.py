"""Methods that know no mechanics: linear solves, least squares, sparse matrices."""
