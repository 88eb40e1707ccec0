"""Assembly: the solution of the position constraints, all assembly modes, and the diagnosis of failures."""
