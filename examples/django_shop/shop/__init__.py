"""A shop that announces its orders."""
