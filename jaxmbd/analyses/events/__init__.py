"""Events: what happens when a quantity of a motion crosses a value."""
