"""Expression graphs: JAX functions of small arrays as scalar expressions, to be written as formulas or source text."""
