"""Motions and fits as NetCDF."""
