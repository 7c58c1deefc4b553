"""What applications import: a message becomes a row of the caller's own transaction."""
