"""Bodies, the ground, and markers: frames fixed on a body where joints and forces attach."""
