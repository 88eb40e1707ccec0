"""Assembly: the search for closed positions, all assembly modes, and what to say where there is none."""
