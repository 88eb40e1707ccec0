"""Identification: parameters from measurements, with their uncertainty."""
