"""The brokers' fixtures: `tests/support/brokers/<broker>.py` has one `<broker>_url` each."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from tests.support import brokers

# Helpers of the fixtures, and no fixtures themselves.
HELPERS = {"__init__", "ladder"}

for path in sorted(Path(brokers.__path__[0]).glob("*.py")):
    if path.stem not in HELPERS:
        fixtures = vars(import_module(f"tests.support.brokers.{path.stem}"))
        globals().update({name: found for name, found in fixtures.items() if name.endswith("_url")})
