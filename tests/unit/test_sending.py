from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.sending import PIECE, Command, answers_to

if TYPE_CHECKING:
    from collections.abc import Sequence


class Line:
    """A connection of which a test says what it writes and answers."""

    def __init__(self) -> None:
        self.usable = True
        self.silent = False
        self.dropped = False
        self.writes = True
        self.sent: list[Sequence[Command]] = []
        self.answers: list[asyncio.Future[str]] = []
        self.written: list[asyncio.Future[None]] = []
        self.forgotten: list[str] = []

    def send(
        self, commands: Sequence[Command]
    ) -> tuple[Sequence[asyncio.Future[str]], asyncio.Future[None]]:
        loop = asyncio.get_running_loop()
        self.sent.append(commands)
        futures: list[asyncio.Future[str]] = [loop.create_future() for _ in commands]
        self.answers += futures
        self.written.append(loop.create_future())
        if self.writes:
            self.written[-1].set_result(None)
        return futures, self.written[-1]

    def forget(self, commands: Sequence[Command]) -> None:
        self.forgotten += [command.key for command in commands]

    def silent_since(self, when: float) -> bool:
        assert when <= asyncio.get_running_loop().time()
        return self.silent

    def drop(self) -> None:
        self.dropped = True

    def abort(self) -> None:
        raise AssertionError

    async def close(self) -> None:
        raise AssertionError

    async def over(
        self, commands: Sequence[Command], seconds: float = 5.0
    ) -> Sequence[asyncio.Future[str]]:
        until = asyncio.get_running_loop().time() + seconds
        return await answers_to(commands, link=self, drop=self.drop, until=until)


def commands(count: int, size: int = 100) -> list[Command]:
    return [Command(f"{i}", "topic", [b"x" * size]) for i in range(count)]


async def until_sent(line: Line, pieces: int) -> None:
    async with asyncio.timeout(5):
        while len(line.sent) < pieces:  # noqa: ASYNC110 - nobody tells us
            await asyncio.sleep(0)


async def test_nothing_needs_no_connection() -> None:
    assert await Line().over([]) == []


async def test_what_is_small_goes_at_once_and_is_answered_one_by_one() -> None:
    line = Line()
    task = asyncio.ensure_future(line.over(commands(3)))
    await until_sent(line, 1)
    for place, answer in enumerate(line.answers):
        answer.set_result(f"answer {place}")
    assert [answer.result() for answer in await task] == ["answer 0", "answer 1", "answer 2"]
    assert [len(piece) for piece in line.sent] == [3]
    assert line.forgotten == ["0", "1", "2"]
    assert not line.dropped


async def test_a_piece_is_a_mebibyte_and_the_next_waits_until_it_is_written() -> None:
    line = Line()
    line.writes = False
    task = asyncio.ensure_future(line.over(commands(7, PIECE // 3)))
    for pieces in (1, 2, 3):
        await until_sent(line, pieces)
        await asyncio.sleep(0)
        assert len(line.sent) == pieces
        line.written[-1].set_result(None)
    for answer in line.answers:
        answer.set_result("taken")
    assert len(await task) == 7
    assert [[command.key for command in piece] for piece in line.sent] == [
        ["0", "1", "2"],
        ["3", "4", "5"],
        ["6"],
    ]


async def test_what_is_larger_than_a_piece_goes_alone() -> None:
    line = Line()
    large = Command("large", "topic", [b"x" * PIECE, memoryview(b"y")])
    task = asyncio.ensure_future(line.over([*commands(2), large, *commands(2)]))
    await until_sent(line, 3)
    for answer in line.answers:
        answer.set_result("taken")
    await task
    assert [len(piece) for piece in line.sent] == [2, 1, 2]


async def test_what_was_not_handed_over_when_the_connection_ended_has_no_future() -> None:
    line = Line()
    line.writes = False
    task = asyncio.ensure_future(line.over(commands(5, PIECE)))
    await until_sent(line, 1)
    line.usable = False
    line.answers[0].set_exception(ConnectionError())
    (answer,) = await task
    assert isinstance(answer.exception(), ConnectionError)
    assert len(line.sent) == 1


async def test_what_was_not_handed_over_in_time_is_not_sent_later() -> None:
    line = Line()
    line.writes = False
    answers = await line.over(commands(5, PIECE), seconds=0.05)
    assert [answer.done() for answer in answers] == [False]
    assert line.dropped
    line.written[0].set_result(None)
    await asyncio.sleep(0)
    assert len(line.sent) == 1


@pytest.mark.parametrize("silent", [True, False])
async def test_a_connection_that_says_nothing_at_all_is_dropped(*, silent: bool) -> None:
    line = Line()
    line.silent = silent
    await line.over(commands(2), seconds=0.01)
    assert line.dropped == silent


async def test_one_that_answers_some_is_kept_where_all_was_written() -> None:
    line = Line()
    line.silent = True
    task = asyncio.ensure_future(line.over(commands(2), seconds=0.05))
    await until_sent(line, 1)
    line.answers[0].set_result("taken")
    await task
    assert not line.dropped


@pytest.mark.parametrize("writes", [True, False])
async def test_what_was_cancelled_before_it_was_written_is_not_written_later(
    *, writes: bool
) -> None:
    line = Line()
    line.writes = writes
    task = asyncio.ensure_future(line.over(commands(2)))
    await until_sent(line, 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert line.dropped == (not writes)
    assert line.forgotten == ["0", "1"]
