"""Assembly of the equations of motion: coordinates, mass matrix, generalized forces and constraint rows."""
