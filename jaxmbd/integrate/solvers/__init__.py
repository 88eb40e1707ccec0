"""Time integration: unrolled explicit Runge-Kutta methods, Radau IIA and Gauss, steps to switching times."""
