"""Alert rules and dashboard, each described once in Python: ``python -m monitoring.render``."""
