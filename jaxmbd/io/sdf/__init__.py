"""SDF, the models and worlds of Gazebo."""
