"""The discrete adjoint: forward and reverse derivatives of a motion from its accepted steps."""
