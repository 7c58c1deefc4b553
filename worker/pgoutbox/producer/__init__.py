"""What applications call inside their own transactions."""
