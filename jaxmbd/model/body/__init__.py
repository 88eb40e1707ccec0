"""Bodies, the ground, and markers: body-fixed frames at which joints and forces attach."""
