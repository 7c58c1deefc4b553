"""Start every part of the walk, wait for a reason to stop, and drain."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgoutbox.dispatch.drain import Deadline, drain
from pgoutbox.dispatch.rounds import Rounds
from pgoutbox.dispatch.tasks import Background
from pgoutbox.events import WorkerStarted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.dispatch.drain import DrainTimes
    from pgoutbox.dispatch.listen import Listener
    from pgoutbox.dispatch.loop import Dispatcher


async def run(
    dispatcher: Dispatcher,
    listener: Listener | None,
    times: DrainTimes,
    *,
    stop_began: Callable[[], float] = time.monotonic,
) -> int:
    """Dispatch until `Dispatcher.request_stop`; the exit code of the process.

    Without a ``listener`` it polls. ``stop_began`` tells when the first signal came, on the
    monotonic clock, so that the drain's deadline counts from there.
    """

    def ended(name: str, error: BaseException | None) -> None:
        dispatcher.request_stop(f"the task {name} ended unexpectedly: {error!r}", exit_code=1)

    background = Background(ended)
    options = dispatcher.options
    dispatcher.emit(
        WorkerStarted(options.owner, options.incarnation, tuple(dispatcher.destinations))
    )
    background.start("finalize", dispatcher.finalizer.run())
    background.start("renew", dispatcher.keeper.renew_forever())
    background.start("watch", dispatcher.keeper.watch_forever(dispatcher.destinations))
    rounds = Rounds(dispatcher)
    background.start("sweep", rounds.run())
    if listener is not None:
        background.start("listen", listener.run())
    claiming = background.start_claiming(dispatcher.claim_forever())

    await dispatcher.stopping()
    deadline = Deadline(times, stop_began())
    await drain(dispatcher, background, claiming, rounds.heartbeat, deadline)
    return dispatcher.stop.exit_code if dispatcher.stop else 0
