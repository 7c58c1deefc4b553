"""The throw-away server cleans up after itself, also when it never came up."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from pgoutbox.demo import embedded

if TYPE_CHECKING:
    from pathlib import Path


def test_a_server_that_cannot_be_set_up_leaves_no_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(embedded, "_binaries", interrupted)
    with pytest.raises(KeyboardInterrupt):
        embedded.EmbeddedServer()
    assert list(tmp_path.iterdir()) == []
