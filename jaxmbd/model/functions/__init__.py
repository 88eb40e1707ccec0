"""Functions of one variable, smooth between declared breaks: of time, of any other variable, and curves."""
