"""A server that imitates AWS, and what a consumer does there."""

from __future__ import annotations

import re
import uuid
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import pytest
from botocore.config import Config
from botocore.session import Session

from pgoutbox.brokers.aws.client import AwsClient
from tests.support.brokers.ladder import (
    Address,
    free_port,
    from_environment,
    listening,
    nothing,
    program,
    start_process,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

REGION = "eu-west-1"
ACCOUNT = "123456789012"
DOCS = Path(__file__).parents[3] / "docs" / "sqs.md"
NAMES = ("All",)
PATIENT = 30.0
"""Seconds: a hundred messages at once, one a request, take moto some on a busy machine."""


@contextmanager
def moto() -> Iterator[str]:
    """The address of a server of our own while the context lasts."""
    path = program("moto_server")
    if path is None:
        nothing("SQS", "install moto[server]")
    address = Address("127.0.0.1", free_port())
    command = [path, "-H", address.host, "-p", str(address.port)]
    with start_process(command, lambda: listening(address)):
        yield f"http://{address}"


@contextmanager
def server(name: str) -> Iterator[str]:
    """The address that PGOUTBOX_TEST_<name>_URL gives, or one of a server of our own."""
    if known := from_environment(name):
        yield known
        return
    with moto() as endpoint:
        yield endpoint


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `use_credentials`."""
    use_credentials(monkeypatch)


def use_credentials(monkeypatch: pytest.MonkeyPatch, **others: str) -> None:
    """Let clients find these, and nothing that belongs to whoever runs the tests."""
    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL", "AWS_ROLE_ARN"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "AWS_ACCESS_KEY_ID": "AKIATEST",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AWS_CONFIG_FILE": "/nonexistent/config",
        "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent/credentials",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    for name, value in (settings | others).items():
        monkeypatch.setenv(name, value)


@cache
def client(service: str, endpoint: str) -> Any:
    """The library's own client, as a consumer would use it."""
    return Session().create_client(
        service,
        region_name=REGION,
        endpoint_url=endpoint,
        aws_access_key_id="AKIATEST",
        aws_secret_access_key="hunter2",
        config=Config(retries={"total_max_attempts": 1}),
    )


def unique(prefix: str = "q", suffix: str = "") -> str:
    """A name that no other test has."""
    return f"{prefix}-{uuid.uuid4().hex[:12]}{suffix}"


class Queue:
    """A queue and its consumer."""

    def __init__(self, endpoint: str, name: str | None = None, **attributes: str) -> None:
        self.name = name or unique()
        if self.name.endswith(".fifo"):
            attributes["FifoQueue"] = "true"
        self._client = client("sqs", endpoint)
        created = self._client.create_queue(QueueName=self.name, Attributes=attributes)
        self.url = created["QueueUrl"]
        self.arn = f"arn:aws:sqs:{REGION}:{ACCOUNT}:{self.name}"
        self.messages: list[dict[str, Any]] = []
        """What it has received so far, in order."""

    def delete(self) -> None:
        self._client.delete_queue(QueueUrl=self.url)

    def receive(self) -> list[dict[str, Any]]:
        """All messages that ever arrived."""
        while found := self._client.receive_message(
            QueueUrl=self.url,
            MaxNumberOfMessages=10,
            MessageAttributeNames=NAMES,
            MessageSystemAttributeNames=NAMES,
        ).get("Messages"):
            self.messages += found
            for one in found:
                self._client.delete_message(QueueUrl=self.url, ReceiptHandle=one["ReceiptHandle"])
        return self.messages

    def bodies(self) -> list[bytes]:
        return [read(message)[0] for message in self.receive()]

    def headers(self) -> list[dict[str, str]]:
        return [read(message)[1] for message in self.receive()]


def read(message: dict[str, Any]) -> tuple[bytes, dict[str, str]]:
    """Body and headers, by the code that the documentation gives to consumers."""
    found: tuple[bytes, dict[str, str]] = _documented()["read"](message)
    return found


@cache
def _documented() -> dict[str, Any]:
    (code,) = re.findall(r"^```python\n(.*?)^```", DOCS.read_text(), re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - our own documentation
    return names


@contextmanager
def authenticating(endpoint: str) -> Iterator[None]:
    """Let the server check credentials meanwhile."""

    def reset(count: str) -> None:
        connection = HTTPConnection(endpoint.removeprefix("http://"))
        connection.request("POST", "/moto-api/reset-auth", count)
        assert connection.getresponse().status == 200
        connection.close()

    reset("0")
    try:
        yield
    finally:
        reset("inf")


Answer = Callable[[str, dict[str, Any]], Awaitable[object]]


class StandIn:
    """In the place of the library's client: what it is asked is kept, what it answers is chosen."""

    def __init__(self, answer: Answer) -> None:
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self._answer = answer

    def __getattr__(self, operation: str) -> Callable[..., Awaitable[object]]:
        async def call(**parameters: Any) -> object:
            self.requests.append((operation, parameters))
            return await self._answer(operation, parameters)

        return call

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""


@contextmanager
def standing_in(answer: Answer) -> Iterator[StandIn]:
    """Publishers that open their client meanwhile get this one."""
    found = StandIn(answer)
    with mock.patch.object(AwsClient, "_open", mock.AsyncMock(return_value=found)):
        yield found
