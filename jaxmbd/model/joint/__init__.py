"""Joints: one small law per class, a residual of the frames that it connects."""
