"""Methods in time: explicit Runge-Kutta methods written out, Radau IIA, steps onto switching times."""
