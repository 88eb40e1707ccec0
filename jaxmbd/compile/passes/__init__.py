"""Passes over programs: symbolic factorisation, scheduling and allocation."""
