"""The model that a user declares: bodies, joints, drivers, forces, sensors and the mechanism."""
