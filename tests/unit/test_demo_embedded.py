"""The throw-away server cleans up after itself, also when it never came up."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from typing import TYPE_CHECKING

import pytest

from pgoutbox.demo import embedded
from pgoutbox.demo.embedded import Watcher

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    # Of whoever runs tests in the background it would inherit to ignore what a watcher sends.
    before = signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    try:
        sleeping = subprocess.Popen(["/bin/sleep", "60"])
    finally:
        signal.signal(signal.SIGQUIT, before)
    with sleeping:
        try:
            yield sleeping
        finally:
            sleeping.kill()


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


def test_the_watcher_ends_what_it_was_told_of_last_and_removes_the_folder(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    root = tmp_path / "root"
    root.mkdir()
    watcher = Watcher(root)
    watcher.tell(None)
    watcher.tell(process.pid)
    # As when its owner is killed; it ends once the process is gone, which is ours to reap.
    assert watcher._process.stdin is not None
    watcher._process.stdin.close()
    assert process.wait(10) == -signal.SIGQUIT
    assert watcher._process.wait(10) == 0
    assert not root.exists()


def test_the_watcher_ends_nothing_that_was_stopped_before(
    tmp_path: Path, process: subprocess.Popen[bytes]
) -> None:
    watcher = Watcher(tmp_path / "root")
    watcher.tell(process.pid)
    watcher.tell(None)
    watcher.dismiss()
    assert process.poll() is None
