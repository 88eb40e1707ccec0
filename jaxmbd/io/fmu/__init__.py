"""Functional Mock-up Units."""
