"""A server that speaks Pub/Sub for tests: Google's in-memory one, or its emulator in Docker."""

from __future__ import annotations

import uuid
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.support.brokers.ladder import from_environment, in_docker, nothing

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

IMAGE = "gcr.io/google.com/cloudsdktool/google-cloud-cli:emulators"
COMMAND = "gcloud beta emulators pubsub start --host-port=0.0.0.0:8085"
PORT = 8085
PROJECT = "pgoutbox-test"
TIMEOUT = 10.0
PAGE = 1000
"""How many messages a pull asks for."""


@pytest.fixture(scope="session")
def pubsub_url() -> Iterator[str]:
    """``pubsub://PROJECT?emulator=host:port``, shared: every test has topics of its own."""
    given = from_environment("PUBSUB")
    if given is not None:
        yield f"pubsub://{PROJECT}?emulator={given.removeprefix('http://').rstrip('/')}"
        return
    with in_docker(IMAGE, PORT, command=COMMAND) as address:
        if address is None:
            nothing("PUBSUB")
        yield f"pubsub://{PROJECT}?emulator={address}"


class Arrival(NamedTuple):
    """What a subscriber is given."""

    body: bytes
    attributes: Mapping[str, str]
    ordering_key: str


def _client(name: str, host: str) -> Any:
    # Half a second, and this module is imported for the tests of all brokers.
    service = import_module("google.pubsub_v1")
    transports = import_module(f"google.pubsub_v1.services.{name.lower()}.transports")
    channel = import_module("grpc").insecure_channel(host)
    transport = getattr(transports, f"{name}GrpcTransport")(channel=channel)
    return getattr(service, f"{name}Client")(transport=transport)


class Topic:
    """A topic with a subscription that keeps the order of each key."""

    def __init__(self, url: str, name: str = "") -> None:
        host = url.partition("emulator=")[2]
        self.name = name or f"test-{uuid.uuid4().hex}"
        self._topic = f"projects/{PROJECT}/topics/{self.name}"
        self._subscription = f"projects/{PROJECT}/subscriptions/{self.name}"
        self._publisher = _client("Publisher", host)
        self._subscriber = _client("Subscriber", host)
        self._arrived: list[Arrival] = []
        self.create()

    def create(self) -> None:
        """Create both."""
        self._publisher.create_topic(name=self._topic)
        self._subscriber.create_subscription(
            request={
                "name": self._subscription,
                "topic": self._topic,
                "enable_message_ordering": True,
            }
        )

    def arrivals(self) -> list[Arrival]:
        """All that has arrived so far, in order."""
        pull = self._subscriber.transport.pull
        request = import_module("google.pubsub_v1.types").PullRequest(
            subscription=self._subscription, max_messages=PAGE, return_immediately=True
        )
        while True:
            # Beneath the client, which warns of the only way to be told "there are no more".
            pulled = pull(request, timeout=TIMEOUT).received_messages
            if not pulled:
                return self._arrived
            for each in pulled:
                message = each.message
                self._arrived.append(
                    Arrival(message.data, dict(message.attributes), message.ordering_key)
                )
            self._subscriber.acknowledge(
                subscription=self._subscription, ack_ids=[each.ack_id for each in pulled]
            )

    def close(self) -> None:
        """Close the connections."""
        self._publisher.transport.close()
        self._subscriber.transport.close()
