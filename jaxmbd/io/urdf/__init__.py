"""URDF models."""
