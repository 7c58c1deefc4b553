"""Where a broker for tests comes from: an address that was given, an installed server, Docker."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import shutil
import socket
import subprocess
import sysconfig
import tempfile
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

import pytest

from tests.support.workers import free_port

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from testcontainers.core.container import DockerContainer

__all__ = [
    "Address",
    "Server",
    "address_in",
    "container_of",
    "free_port",
    "from_environment",
    "in_docker",
    "listening",
    "locked",
    "nothing",
    "program",
    "split_address",
    "start_process",
    "until_listening",
]

PATIENCE = 60.0
PAUSE = 0.05
GRACE = 10.0
"""How long a server may take to end by itself."""


class Address(NamedTuple):
    """A host and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Server(NamedTuple):
    """A server of our own, as a process."""

    process: subprocess.Popen[bytes]
    log: Path

    def __str__(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join(lines) or "(it wrote nothing)"


def from_environment(name: str) -> str | None:
    """The value of PGOUTBOX_TEST_<name>_URL, for example for ``KAFKA``; None where it is unset."""
    return os.environ.get(f"PGOUTBOX_TEST_{name}_URL") or None


def split_address(text: str) -> Address:
    """``127.0.0.1:9092`` as host and port."""
    host, _, port = text.rpartition(":")
    return Address(host, int(port))


def address_in(url: str) -> str:
    """``host:port`` of the server that a URL leads to."""
    return urlsplit(url).netloc.rpartition("@")[2]


def program(name: str) -> str | None:
    """The path of a program beside this interpreter, or in PATH."""
    beside = Path(sysconfig.get_path("scripts"), name)
    return str(beside) if os.access(beside, os.X_OK) else shutil.which(name)


def nothing(name: str, advice: str = "", *, known: str = "") -> NoReturn:
    """Fail the test: there is no such server here. A skipped promise would look like a kept one."""
    known = known or f"Set PGOUTBOX_TEST_{name}_URL to the address of one that tests may use"
    ways = [known, *filter(None, [advice.rstrip(".")]), "start a Docker engine"]
    pytest.fail(f"No {name} server for this test. {', or '.join(ways)}.", pytrace=False)


def listening(address: Address) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(address, timeout=1).close()
    except OSError:
        return False
    return True


@contextlib.contextmanager
def start_process(
    argv: Sequence[str],
    ready: Callable[[], bool],
    *,
    patience: float = PATIENCE,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Server]:
    """Run a server while the context lasts: entered once it is ready, ended by its pid."""
    with tempfile.TemporaryDirectory(prefix="pgoutbox-server-") as folder:
        log = Path(folder, "log")
        with log.open("wb") as output:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environment or {})},
                cwd=folder,
            )
        server = Server(process, log)
        try:
            _until_ready(server, ready, time.monotonic() + patience)
            yield server
        finally:
            end(process)


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask it to end, and kill it if it does not listen; it may have ended already."""
    process.terminate()
    try:
        process.wait(GRACE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _until_ready(server: Server, ready: Callable[[], bool], deadline: float) -> None:
    while not ready():
        code = server.process.poll()
        if code is not None or time.monotonic() > deadline:
            why = "was not ready in time" if code is None else f"ended at once with {code}"
            pytest.fail(f"{server.process.args!r} {why}:\n{server}", pytrace=False)
        time.sleep(PAUSE)  # a server is asked again, not waited for: it has no way to call us


@contextlib.contextmanager
def in_docker(
    image: str,
    port: int,
    *,
    environment: Mapping[str, str] | None = None,
    command: str | None = None,
    patience: float = PATIENCE,
) -> Iterator[Address | None]:
    """Where a container's ``port`` is to be found meanwhile; None where Docker gives us none."""
    env = dict(environment or {})
    with container_of(image, command=command, env=env, ports=[port]) as container:
        if container is None:
            yield None
            return
        address = Address("127.0.0.1", int(container.get_exposed_port(port)))
        until_listening(image, address, time.monotonic() + patience)
        yield address


@contextlib.contextmanager
def container_of(image: str, **options: Any) -> Iterator[DockerContainer | None]:
    """A container that has been started, not yet ready; None where Docker gives us none.

    ``options``: those of a testcontainers ``DockerContainer``.
    """
    if not (Path("/var/run/docker.sock").exists() or "DOCKER_HOST" in os.environ):
        yield None
        return
    from docker.errors import DockerException  # noqa: PLC0415 - slow, and mostly not needed
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415

    try:
        container = DockerContainer(image, **options).start()
    except (DockerException, OSError):
        # Its client leaves the socket of an engine that said no to the garbage collector.
        with warnings.catch_warnings(action="ignore", category=ResourceWarning):
            gc.collect()
        yield None
        return
    try:
        yield container
    finally:
        container.stop()


def until_listening(image: str, address: Address, deadline: float) -> None:
    """Return once a container takes connections, before ``deadline`` on the monotonic clock."""
    while not listening(address):
        if time.monotonic() > deadline:
            pytest.fail(f"the container of {image} did not listen in time", pytrace=False)
        time.sleep(PAUSE)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold something that there is one of on this machine, such as a port that is agreed on."""
    path = Path(tempfile.gettempdir(), f"pgoutbox-tests-{name}.lock")
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
