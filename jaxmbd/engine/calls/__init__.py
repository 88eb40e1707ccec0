"""Analyses as calls that run at once, are compiled when it is worth it, and are kept on disk."""
