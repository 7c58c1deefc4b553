"""A batch on its way over one connection: sent in pieces, answered message by message."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from pgoutbox.brokers.reconnect import Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Written = asyncio.Future[None]

PIECE = 2**20
"""Bytes that are copied and written at once. More would hold up all else in the event loop, such as
the renewal of leases."""


class Command(NamedTuple):
    """One message, ready to be sent."""

    key: str
    """By which its answer is known."""
    topic: str
    parts: Sequence[bytes | memoryview]

    @property
    def size(self) -> int:
        """In bytes."""
        return sum(map(len, self.parts))


A = TypeVar("A")


class Line(Link, Protocol[A]):
    """A connection that messages are sent over."""

    def send(self, commands: Sequence[Command]) -> tuple[Sequence[asyncio.Future[A]], Written]:
        """Hand them over, all at once, and wait for nothing.

        The futures are for their answers, and for the moment when the operating system has them.
        """
        ...

    def forget(self, commands: Sequence[Command]) -> None:
        """Nobody waits for the answers to these any more."""
        ...

    def silent_since(self, when: float) -> bool:
        """Whether there was no answer to anything since, and not because the broker said so."""
        ...


async def answers_to(
    commands: Sequence[Command],
    *,
    link: Line[A],
    drop: Callable[[], None],
    until: float,
) -> Sequence[asyncio.Future[A]]:
    """Send them and wait for the answers, until that time of the event loop's clock at most.

    There are fewer futures than commands where the connection or the time ended before all were
    handed over: nothing of the others was sent. Nor is anything sent later: a link that still holds
    some of it is dropped, as is one that says nothing at all.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    answers: list[asyncio.Future[A]] = []
    written: Written = loop.create_future()
    try:
        for piece in _pieces(commands):
            if answers:
                # An answer to the last one means that all were written, or that the link is lost.
                first = asyncio.FIRST_COMPLETED
                await asyncio.wait((written, answers[-1]), timeout=_left(until), return_when=first)
            if not link.usable or loop.time() >= until:
                break
            some, written = link.send(piece)
            answers += some
        if answers:
            await asyncio.wait(answers, timeout=_left(until))
    except asyncio.CancelledError:
        if answers and not written.done():
            drop()
        raise
    finally:
        link.forget(commands)
    done = [each.done() for each in answers]
    silent = not any(done) and link.silent_since(began)
    if not all(done) and (silent or not written.done()):
        drop()
    return answers


def _left(until: float) -> float:
    return max(until - asyncio.get_running_loop().time(), 0.0)


def _pieces(commands: Sequence[Command]) -> Iterator[Sequence[Command]]:
    """Of a mebibyte, or of one command where that is larger."""
    piece: list[Command] = []
    size = 0
    for command in commands:
        if piece and size + command.size > PIECE:
            yield piece
            piece, size = [], 0
        piece.append(command)
        size += command.size
    if piece:
        yield piece
