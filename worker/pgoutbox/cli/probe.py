"""One message to a destination, as a worker would send it, and what became of it in words."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, assert_never

import click

from pgoutbox.cli.console import FAILURE, OK
from pgoutbox.destinations.registry import open_publisher
from pgoutbox.dispatch.publish import Unclassified, publish, publish_batch
from pgoutbox.message import JSON_CONTENT_TYPE, ClaimedMessage
from pgoutbox.outcome import (
    Deferred,
    Interrupted,
    Outcome,
    PermanentFailure,
    Published,
    RetryableFailure,
    Unavailable,
    Unstarted,
)
from pgoutbox.producer.headers import headers_text
from pgoutbox.producer.ids import new_id
from pgoutbox.publisher import BatchPublisher

if TYPE_CHECKING:
    from pgoutbox.publisher import Publisher
    from pgoutbox.settings import Destination

PATIENCE = 2.0
"""Seconds that a publisher has for letting a cancellation through, and again for closing."""

TIMED_OUT = (
    "check that it is well, or give it more time: here with --timeout, and in workers with the"
    " setting publish_timeout"
)
UNAVAILABLE = (
    "unless that says it all, check the URL, the credentials, the network, and whether it is up; a"
    " worker keeps trying, and spends no attempts meanwhile"
)
RETRYABLE = (
    "a worker repeats it with growing pauses and spends an attempt each time, which helps only"
    " against what passes by itself"
)
THROTTLED = "it wants fewer messages: a worker sends fewer at once, and no message dies of it soon"
GONE = "it wants nothing any more: remove the destination, or have it opened again over there"
REFUSED = (
    "change the settings, what it accepts, or what the probe looks like (--aggregate-type,"
    " --event-type, --header); a message that is refused like this is dead at its first attempt"
)

Result = Outcome | Unclassified | None
"""None: there was no answer in time."""


class Probe:
    """One probe message and, after `run`, what is to be said about it."""

    def __init__(
        self, name: str, chosen: Destination, message: ClaimedMessage, *, timeout: float | None
    ) -> None:
        self.name = name
        self.said: list[str] = []
        self.message = message
        self._url = chosen.url
        options = chosen.publisher_options(name)
        self._options = options if timeout is None else replace(options, publish_timeout=timeout)

    async def run(self) -> int:
        """Open, publish, close. Returns the exit code; raises `InvalidDestination`."""
        publisher = await open_publisher(self._url.get_secret_value(), options=self._options)
        began = time.monotonic()
        result = await self._publish(publisher)
        took = time.monotonic() - began
        self.said += sentences(self.name, result, self._options.publish_timeout, took)
        await self._close(publisher)
        if not isinstance(result, Published):
            return FAILURE
        sent = self.message
        self.said.append(f"its message id is {sent.message_id}, its event type `{sent.event_type}`")
        return OK

    async def _publish(self, publisher: Publisher | BatchPublisher) -> Result:
        """In a task that can be left behind, since a publisher may ignore its cancellation."""
        task = asyncio.create_task(_published(self.message, publisher))
        await asyncio.wait({task}, timeout=self._options.publish_timeout)
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=PATIENCE)
            return None
        try:
            return task.result()
        except Unclassified as error:
            _show(error)
            return error

    async def _close(self, publisher: Publisher | BatchPublisher) -> None:
        task = asyncio.create_task(publisher.close())
        await asyncio.wait({task}, timeout=PATIENCE)
        if not task.done():
            task.cancel()
            self.said.append("its publisher did not close in time")
        elif (error := task.exception()) is not None:
            self.said.append(f"its publisher failed to close, with {type(error).__name__}")


def probe_message(
    name: str, aggregate_type: str, event_type: str, headers: dict[str, str]
) -> ClaimedMessage:
    """A message that says what it is, and that no outbox knows. Raises `InvalidMessage`."""
    now = datetime.now(UTC)
    text = f"A test of the destination {name}, sent by `pgoutbox destinations test`. Ignore it."
    return ClaimedMessage(
        id=0,
        lease_version=1,
        attempts=1,
        reclaims=0,
        message_id=new_id(),
        destination=name,
        ordering_key=None,
        aggregate_type=aggregate_type,
        aggregate_id=name,
        event_type=event_type,
        content_type=JSON_CONTENT_TYPE,
        body=json.dumps({"probe": text, "sent_at": now.isoformat()}).encode(),
        headers_json=headers_text(headers),
        created_at=now,
        age=0.0,
    )


async def _published(
    message: ClaimedMessage, publisher: Publisher | BatchPublisher
) -> Outcome | Unclassified:
    if isinstance(publisher, BatchPublisher):
        [answer] = await publish_batch([message], publisher)
        return answer
    return await publish(message, publisher)


def _show(error: Unclassified) -> None:
    """With --debug: the text of an exception that nobody classified may hold anything."""
    if (context := click.get_current_context(silent=True)) is None:
        return
    if context.find_root().params.get("debug"):
        traceback.print_exception(error)


def sentences(name: str, result: Result, timeout: float, took: float) -> list[str]:
    """What happened, and what to do about it."""
    match result:
        case Published():
            return [f"{name} took the probe in {took * 1000:.0f} ms"]
        case None:
            what = f"{name} gave no answer within {timeout:g} s; it may have the probe"
            return [what, TIMED_OUT]
        case Unclassified():
            return _bug(name, result)
        case _:
            return _not_taken(name, result)


def _not_taken(
    name: str,
    result: Unavailable | RetryableFailure | PermanentFailure | Deferred | Interrupted | Unstarted,
) -> list[str]:
    match result:
        case Unavailable(error):
            return [f"{name} is not available, and nothing was sent: {error}", UNAVAILABLE]
        case RetryableFailure(error, retry_after):
            return [
                f"{name} did not confirm the probe: {error}",
                *_asked_to_wait(retry_after),
                THROTTLED if result.throttled else RETRYABLE,
            ]
        case PermanentFailure(error, gone):
            return [f"{name} refuses the probe for good: {error}", GONE if gone else REFUSED]
        case Deferred(delay, reason):
            return [
                f"{name} asks to be called again in {delay:g} s: {reason}",
                "try again then; a worker waits as long, and spends no attempt",
            ]
        case Interrupted() | Unstarted():  # only a drain makes these
            return []
        case _:
            assert_never(result)


def _asked_to_wait(seconds: float | None) -> list[str]:
    return [] if seconds is None else [f"it asks to wait for {seconds:g} s"]


def _bug(name: str, error: Unclassified) -> list[str]:
    # Its text was written for nobody, and may hold what no terminal should show.
    what = "something wrong" if error.__cause__ is None else type(error.__cause__).__name__
    return [
        f"the publisher of {name} answered with {what}, which is none of the four exceptions",
        "report this bug to whoever provides the publisher; a worker stops the destination",
        "`pgoutbox --debug destinations test ...` shows where",
    ]
