from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _identity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who the operator says that it is."""
    monkeypatch.setenv("POD_ID", "test")
    monkeypatch.setenv("POD_NAMESPACE", "shop")
