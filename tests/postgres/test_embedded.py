"""The throw-away server ends with whoever started it, however that one ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psycopg
import pytest

from tests.support.observing import eventually

# The thread that starts it ends at once: what counts is the process.
OWNER = """
import threading, time
from pgoutbox.demo.embedded import EmbeddedServer

def start():
    server = EmbeddedServer(settings={"fsync": "off"})
    server.start()
    print(server.dsn, server._root, flush=True)

thread = threading.Thread(target=start)
thread.start()
thread.join()
time.sleep(3600)
"""


def test_a_server_whose_owner_is_killed_ends_and_leaves_no_folder() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        dsn, root = owner.stdout.readline().decode().split()
        watched = psycopg.connect(dsn)
        assert watched.execute("SELECT 1").fetchone() == (1,)
        owner.kill()

    with watched, pytest.raises(psycopg.OperationalError):
        eventually(lambda: watched.execute("SELECT 1").rowcount < 1, "the end of the server")
    eventually(lambda: not Path(root).exists(), "the end of its folder")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(dsn)
