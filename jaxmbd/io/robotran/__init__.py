"""Models of Robotran."""
