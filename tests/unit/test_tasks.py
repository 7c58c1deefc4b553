from __future__ import annotations

import asyncio
from contextlib import suppress

from pgoutbox.dispatch.tasks import Background
from tests.support.dispatching import Watched


class Ends(Watched):
    """What ended unexpectedly."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[tuple[str, BaseException | None]] = []

    def __call__(self, name: str, error: BaseException | None) -> None:
        self.told.append((name, error))
        self.changed()


async def for_ever() -> None:
    await asyncio.Event().wait()


async def at_once() -> None:
    pass


async def fails() -> None:
    raise ValueError("broken")


async def test_a_background_task_that_raises_is_reported_with_its_name_and_error() -> None:
    ends = Ends()
    background = Background(ends)
    background.start("renew", for_ever())
    background.start("sweep", fails())
    await ends.until(lambda: ends.told)
    [(name, error)] = ends.told
    assert name == "sweep"
    assert isinstance(error, ValueError)
    await background.cancel(seconds=1.0)


async def test_a_background_task_that_merely_returns_is_reported_as_well() -> None:
    ends = Ends()
    Background(ends).start("listen", at_once())
    await ends.until(lambda: ends.told)
    assert ends.told == [("listen", None)]


async def test_what_was_cancelled_is_not_unexpected() -> None:
    ends = Ends()
    background = Background(ends)
    background.start("renew", for_ever())
    background.start("sweep", for_ever())
    await asyncio.sleep(0)
    await background.cancel("sweep", seconds=1.0)
    assert [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "renew"]
    await background.cancel(seconds=1.0)
    assert ends.told == []


async def test_cancelling_waits_no_longer_than_told_for_a_task_that_does_not_end() -> None:
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            with suppress(asyncio.CancelledError):
                await release.wait()

    ends = Ends()
    background = Background(ends)
    background.start("listen", stubborn())
    await asyncio.sleep(0)
    async with asyncio.timeout(5):
        await background.cancel(seconds=0.01)
    release.set()
    await ends.until(lambda: ends.told)


async def test_claiming_may_end_by_itself_but_not_by_an_error() -> None:
    ends = Ends()
    background = Background(ends)
    await background.start_claiming(at_once())
    failing = background.start_claiming(fails())
    await asyncio.wait({failing})
    await ends.until(lambda: ends.told)
    assert [name for name, _ in ends.told] == ["claim"]


async def test_the_goodbye_to_all_tasks_leaves_the_claim_alone() -> None:
    release = asyncio.Event()

    async def claim() -> None:
        await release.wait()

    background = Background(Ends())
    claiming = background.start_claiming(claim())
    await asyncio.sleep(0)
    await background.cancel(seconds=0.01)
    assert not claiming.done()
    release.set()
    await claiming
