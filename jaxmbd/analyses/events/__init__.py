"""Events: actions that are triggered when a quantity of the motion crosses a value."""
