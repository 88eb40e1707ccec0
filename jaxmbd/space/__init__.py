"""The plane and three dimensions: frames, twists, charts, rotations, inertia of solids."""
