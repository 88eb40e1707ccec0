"""Compiler passes: common subexpressions, dead code, contraction, scheduling, allocation; symbolic factorisation."""
