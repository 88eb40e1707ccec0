"""The state of a mechanism, its quantities by name, and how an analysis ended: what all analyses share."""
