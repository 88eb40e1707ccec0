"""JAX functions of small arrays as graphs of scalar expressions, to be written as formulas or as source text."""
