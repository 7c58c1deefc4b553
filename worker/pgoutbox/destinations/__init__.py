"""From a destination's settings to its publisher."""
