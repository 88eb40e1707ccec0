"""From a jaxpr to a program: rules, values, optimisation, schedule."""
