"""Planar and spatial kinematics: frames, twists, wrenches, charts, rotations, and mass properties of solids."""
