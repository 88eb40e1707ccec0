"""The equations of motion in time: formulations of the constraints, solvers, and the adjoint."""
