"""Every kind of destination is held to the whole contract, but for what it has no notion of."""

from __future__ import annotations

import importlib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from pgoutbox.testing import PublisherContract

OPTIONAL = frozenset(
    {
        "another",
        "arrivals",
        "missing",
        "open_at",
        "server",
        "too_large",
        "unauthorized",
        "unreachable",
    }
)
NO_SERVER = "it talks to no server"
NO_LIMIT = "it takes messages of any size"
ABSENT = {
    "jsonl": {
        "missing": "the file is created",
        "open_at": NO_SERVER,
        "server": NO_SERVER,
        "too_large": NO_LIMIT,
        "unauthorized": "a file that may not be written to is refused at start",
    },
    "stdout": {
        "missing": NO_SERVER,
        "open_at": NO_SERVER,
        "server": NO_SERVER,
        "too_large": NO_LIMIT,
        "unauthorized": NO_SERVER,
    },
    "noop": {
        "arrivals": "nothing arrives anywhere",
        "missing": NO_SERVER,
        "open_at": NO_SERVER,
        "server": NO_SERVER,
        "too_large": NO_LIMIT,
        "unauthorized": NO_SERVER,
        "unreachable": NO_SERVER,
    },
}
"""Why a kind of destination lacks a fixture. Each is a test that is skipped, and there are no
others, but for the batches of what takes one message at a time."""
MODULES = {"amqp": "rabbitmq", "amqps": "rabbitmq", "https": "http", "rediss": "redis"}
KINDS = sorted(
    {MODULES.get(one.name, one.name) for one in entry_points(group="pgoutbox.publishers")}
)


def contract_of(kind: str) -> type[PublisherContract]:
    assert (Path(__file__).parent / f"test_{kind}.py").exists()
    module = importlib.import_module(f"tests.contract.test_{kind}")
    (found,) = (
        value
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, PublisherContract)
        and value is not PublisherContract
    )
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_of_destination_provides_all_that_it_has_a_notion_of(kind: str) -> None:
    provided = OPTIONAL & vars(contract_of(kind)).keys()
    assert OPTIONAL - provided == ABSENT.get(kind, {}).keys()
