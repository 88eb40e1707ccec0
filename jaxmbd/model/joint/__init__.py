"""Joints: one class per type, each defined by the constraint residual of the marker frames that it connects."""
