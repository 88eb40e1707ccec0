"""What is undocumented in JAX, equinox and diffrax and used: a new version of them is met here alone."""
