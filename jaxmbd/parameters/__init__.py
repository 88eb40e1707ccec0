"""Numbers of mechanisms that are free: their names, places, ranges and priors."""
