"""Functions as programs of scalar operations: traced, optimised, run by a virtual machine. Knows no mechanics."""
