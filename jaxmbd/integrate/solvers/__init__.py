"""Time integration methods: explicit Runge-Kutta methods with unrolled stages, Radau IIA, steps to switching times."""
