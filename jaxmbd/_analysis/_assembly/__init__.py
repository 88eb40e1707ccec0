"""Assembly: the search for closed positions, all closures, and what to say where there is none."""
