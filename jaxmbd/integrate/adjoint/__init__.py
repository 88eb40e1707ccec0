"""Derivatives of a motion: those of its accepted steps, forward and backward."""
