"""Destinations are opened as by a worker, and closed again, to see what is wrong with them."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.destinations.registry import open_publisher
from pgoutbox.errors import InvalidDestination
from pgoutbox.settings import SettingsError, located, unusable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgoutbox.problem import Problem
    from pgoutbox.settings import Destination

PATIENCE = 5.0
"""Seconds that a publisher may take to close."""


class Opened(NamedTuple):
    """What became of one destination."""

    topic: str | None
    """Where its messages go in the broker, as far as its publisher tells."""
    problem: Problem | None


def open_all(destinations: Mapping[str, Destination], *, to: str | None) -> dict[str, Opened]:
    """Open each; ``to`` is the URL that the command line gave for the destination `default`."""
    opened = asyncio.run(_open_all(destinations))
    problems = [one.problem for one in opened.values() if one.problem is not None]
    told = iter(located(problems, os.environ, to=to) if problems else ())
    return {
        name: one if one.problem is None else one._replace(problem=next(told))
        for name, one in opened.items()
    }


def refused(destinations: Mapping[str, Destination], *, to: str | None) -> list[Problem]:
    """What the publishers say against the URLs."""
    opened = open_all(destinations, to=to).values()
    return [one.problem for one in opened if one.problem is not None]


def with_refused(error: SettingsError, *, to: str | None) -> SettingsError:
    """The same error, and also what is wrong with the URLs of all other destinations."""
    return SettingsError([*error.problems, *refused(error.usable, to=to)])


async def _open_all(destinations: Mapping[str, Destination]) -> dict[str, Opened]:
    return {name: await _open(name, chosen) for name, chosen in destinations.items()}


async def _open(name: str, chosen: Destination) -> Opened:
    options = chosen.publisher_options(name)
    topic = chosen.topic
    try:
        publisher = await open_publisher(chosen.url.get_secret_value(), options=options)
        topic = getattr(getattr(publisher, "topic", None), "text", topic)
        async with asyncio.timeout(PATIENCE):
            await publisher.close()
    except InvalidDestination as error:
        return Opened(topic, unusable(name, chosen, error.problem))
    except Exception as error:  # noqa: BLE001 - one publisher with a bug hides no other one
        bug = f"its publisher failed with {type(error).__name__}, which is a bug of the publisher"
        return Opened(topic, unusable(name, chosen, bug))
    return Opened(topic, None)
