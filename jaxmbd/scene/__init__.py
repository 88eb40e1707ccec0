"""What a picture of a mechanism shows, as data for any renderer: pieces that move with the bodies, arrows, names."""
