"""RabbitMQ for tests: one that all may use, and one that a test may kill or starve."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aiormq
import pytest
from pamqp.commands import Basic

from tests.contract.tls_http import tls_contexts
from tests.support.brokers import ladder

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

    from aiormq.abc import AbstractChannel
    from pamqp.common import FieldValue

IMAGE = "rabbitmq:3.13"
PATIENCE = 60.0
MAX_MESSAGE_SIZE = 4 * 2**20
"""Of our own server."""
CONFIGURATION = f"""
loopback_users = none
vm_memory_high_watermark.absolute = 512MB
disk_free_limit.absolute = 50MB
max_message_size = {MAX_MESSAGE_SIZE}
ssl_options.verify = verify_none
"""
ADVICE = "install RabbitMQ (rabbitmq-server)"


class Received(NamedTuple):
    """A message as a consumer gets it."""

    body: bytes
    properties: Basic.Properties
    routing_key: str | None


class Place(NamedTuple):
    """A queue, and the exchange that it gets everything from."""

    url: str
    exchange: str
    queue: str

    @property
    def destination_url(self) -> str:
        return f"{self.url}?exchange={self.exchange}"

    async def declare_exchange(self, name: str) -> None:
        """Another exchange that leads to this queue, gone once the queue is."""
        async with channel(self.url) as opened:
            await opened.exchange_declare(name, exchange_type="topic", auto_delete=True)
            await opened.queue_bind(self.queue, name, routing_key="#")

    async def declare_full_queue(self) -> str:
        """A queue that refuses everything; its name."""
        name = f"{self.queue}-full"
        arguments: dict[str, FieldValue] = {
            "x-max-length": 0,
            "x-overflow": "reject-publish",
            "x-expires": 60_000,
        }
        async with channel(self.url) as opened:
            await opened.queue_declare(name, durable=True, arguments=arguments)
        return name

    def received(self) -> list[Received]:
        """What is in the queue, and takes it out. May be called while an event loop runs."""
        return in_thread(self._take_all)

    async def _take_all(self) -> list[Received]:
        found: list[Received] = []
        async with channel(self.url) as reading:
            while True:
                message = await reading.basic_get(self.queue, no_ack=True)
                if isinstance(message.delivery, Basic.GetEmpty):
                    return found
                properties = message.header.properties
                found.append(Received(message.body, properties, message.routing_key))


@contextlib.asynccontextmanager
async def channel(url: str) -> AsyncIterator[AbstractChannel]:
    """A channel of a connection of its own."""
    connection = await aiormq.connect(url)
    try:
        yield await connection.channel()
    finally:
        await connection.close()


@contextlib.asynccontextmanager
async def place(url: str) -> AsyncIterator[Place]:
    """A queue of its own that takes whatever is published to an exchange of its own."""
    name = f"test-{uuid.uuid4().hex}"
    async with channel(url) as opened:
        await opened.exchange_declare(name, exchange_type="topic", durable=True)
        await opened.queue_declare(name, durable=True)
        await opened.queue_bind(name, name, routing_key="#")
    try:
        yield Place(url, name, name)
    finally:
        async with channel(url) as opened:
            await opened.queue_delete(name)
            await opened.exchange_delete(name)


def in_thread(work: Callable[[], Coroutine[Any, Any, list[Received]]]) -> list[Received]:
    """Run it in an event loop of its own."""
    found: list[list[Received]] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join(PATIENCE)
    assert found, "the queue could not be read"
    return found[0]


class OwnServer:
    """A server that the tests start, kill and run out of memory."""

    def __init__(self, folder: Path, scripts: Path) -> None:
        self._folder, self._scripts = folder, scripts
        ports = (ladder.free_port() for _ in range(4))
        self.port, self.tls_port, self._distribution, self._epmd = ports
        self._process: subprocess.Popen[bytes] | None = None
        (folder / "enabled_plugins").write_text("[].")
        tls_contexts(folder, "localhost")
        self.certificate = folder / "server.pem"
        tls = (
            f"listeners.ssl.default = 127.0.0.1:{self.tls_port}\n"
            f"ssl_options.certfile = {self.certificate}\n"
            f"ssl_options.keyfile = {self.certificate}\n"
        )
        (folder / "rabbitmq.conf").write_text(CONFIGURATION + tls)

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def start(self) -> None:
        """Return once it takes connections."""
        self._log.unlink(missing_ok=True)
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                [self._scripts / "rabbitmq-server"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment,
            )
        deadline = time.monotonic() + PATIENCE
        while not (self._started() and ladder.listening(ladder.Address("127.0.0.1", self.port))):
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"RabbitMQ did not start:\n{self._output.read_text()}", pytrace=False)
            time.sleep(0.05)  # it is asked again, not waited for

    def kill(self) -> None:
        """End it without a warning."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in an orderly way."""
        self._end(signal.SIGTERM)

    def control(self, *arguments: str) -> None:
        """Call rabbitmqctl."""
        subprocess.run(
            [self._scripts / "rabbitmqctl", *arguments],
            check=True,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE,
        )

    @contextlib.contextmanager
    def out_of_memory(self) -> Iterator[None]:
        """Its memory alarm is on meanwhile."""
        self.control("set_vm_memory_high_watermark", "absolute", "1MB")
        try:
            yield
        finally:
            self.control("set_vm_memory_high_watermark", "absolute", "512MB")

    @contextlib.contextmanager
    def names(self) -> Iterator[None]:
        """Run the name server that Erlang insists on, on a port of our own."""
        epmd = shutil.which("epmd") or "epmd"
        arguments = ["-port", str(self._epmd), "-address", "127.0.0.1"]
        process = subprocess.Popen(
            [epmd, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield
        finally:
            ladder.end(process)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        # The server writes its own here: the script may be another process.
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self._folder / "pid").read_text()), number)
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _started(self) -> bool:
        return self._log.exists() and "Server startup complete" in self._log.read_text()

    @property
    def _log(self) -> Path:
        return self._folder / "log" / f"outbox{self.port}@localhost.log"

    @property
    def _output(self) -> Path:
        return self._folder / "output"

    @property
    def _environment(self) -> dict[str, str]:
        folder = str(self._folder)
        quiet = "+S 1:1 +sbwt none +sbwtdcpu none +sbwtdio none"
        return {
            **os.environ,
            "HOME": folder,
            "RABBITMQ_HOME": str(self._scripts.parent),
            "RABBITMQ_NODENAME": f"outbox{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(self._distribution),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/config",
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"{quiet} -kernel inet_dist_use_interface {{127,0,0,1}}"
            ),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(self._epmd),
        }


def installed() -> Path | None:
    """The folder of the server's own scripts. The ones in PATH insist on a user of theirs."""
    found = sorted(Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin"))
    return found[-1] if found else None


@contextlib.contextmanager
def own_server(scripts: Path) -> Iterator[OwnServer]:
    """A running server of our own."""
    with tempfile.TemporaryDirectory(
        prefix="pgoutbox-rabbitmq-", ignore_cleanup_errors=True
    ) as folder:
        server = OwnServer(Path(folder), scripts)
        with server.names():
            server.start()
            try:
                yield server
            finally:
                server.stop()


@pytest.fixture(scope="session")
def rabbitmq_url() -> Iterator[str]:
    """A server that tests share: they name their queues and exchanges so that none meet."""
    if given := ladder.from_environment("RABBITMQ"):
        yield given
        return
    scripts = installed()
    if scripts is not None:
        with own_server(scripts) as server:
            yield server.url
        return
    with ladder.in_docker(IMAGE, 5672) as address:
        if address is None:
            ladder.nothing("RABBITMQ", ADVICE)
        yield f"amqp://guest:guest@{address}/"


@pytest.fixture(scope="session")
def own_rabbitmq() -> Iterator[OwnServer]:
    """A server of the tests' own. Whoever kills it starts it again."""
    scripts = installed()
    if scripts is None:
        pytest.fail(f"This test kills a RabbitMQ of its own. {ADVICE.capitalize()}.", pytrace=False)
    with own_server(scripts) as server:
        yield server
