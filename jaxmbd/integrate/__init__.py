"""Integration of the equations of motion in time: constraint formulations, solvers, and the discrete adjoint."""
