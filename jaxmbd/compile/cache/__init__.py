"""Compiled analyses and programs on disk: read as data, checked before use."""
