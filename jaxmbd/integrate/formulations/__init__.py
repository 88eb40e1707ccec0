"""How the constraints are kept: stabilisation, projection, coordinate partitioning, prescribed motion."""
