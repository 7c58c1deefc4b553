"""Events into log lines: few, without payloads, and at most one for a batch."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, assert_never

import structlog

from pgoutbox import events
from pgoutbox.outcome import Bury, Published, Unstarted
from pgoutbox.telemetry.deliveries import Deliveries
from pgoutbox.telemetry.quiet import Quiet, clean
from pgoutbox.telemetry.tally import OUTCOMES
from pgoutbox.telemetry.tracing import context

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from pgoutbox.events import Event, Finalized, Settled
    from pgoutbox.message import ClaimedMessage
    from pgoutbox.telemetry.deliveries import Later

EXAMPLES = 5
"""Messages that a line names; the rest are counted."""
BURST = 10
"""Lines about different messages that come one after the other before they become one."""


def on_this_loop(seconds: float, call: Callable[[], None]) -> object:
    """Call it later; events come on the event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)


class Logs:
    """Observer of events. A batch in which all went well is only counted."""

    def __init__(
        self,
        *,
        logger: FilteringBoundLogger | None = None,
        clock: Callable[[], float] = time.monotonic,
        later: Later = on_this_loop,
    ) -> None:
        """``later`` calls a function after so many seconds."""
        self._log: FilteringBoundLogger = logger or structlog.get_logger()
        self._debug = self._log.is_enabled_for(logging.DEBUG)
        self._quiet = Quiet(clock, later)
        self._deliveries = Deliveries(self._log, clock, later)

    def on_event(self, event: Event) -> None:  # noqa: C901, PLR0912, PLR0915 - one case per event
        """Write what is worth a line."""
        match event:
            case events.Claimed():
                self._claimed(event)
            case events.Finalized():
                self._finalized(event)
            case events.Renewed():
                if self._debug:
                    self._log.debug("leases renewed", count=event.count)
            case events.WorkerStarted():
                self._started(event)
            case events.WakeupModeChanged():
                missing = event.insisted and event.mode == "poll"
                tell = self._log.error if missing else self._log.info
                tell("wakeup mode", mode=event.mode, reason=clean(event.reason))
            case events.LeaseLost():
                self._lease_lost("publish", event.messages)
            case events.LeaseUnconfirmed():
                self._quiet.say(self._log.warning, "lease unconfirmed", **_named(event.messages))
            case events.Reaped():
                self._reaped(event)
            case events.Pruned():
                if self._debug:
                    self._log.debug("finished messages pruned", count=event.count)
            case events.DatabaseFailed():
                self._database_failed(event)
            case events.DatabaseRecovered():
                self._log.info("database recovered", seconds=_short(event.seconds))
            case events.PublisherFailed():
                self._crashed(event)
            case events.DestinationStopped():
                fields = {"destination": event.destination, "reason": clean(event.reason)}
                self._log.error("destination stopped", **fields)
            case events.BreakerChanged():
                self._breaker(event)
            case events.DrainStarted() | events.DrainEnded():
                self._drain(event)
            case _:
                assert_never(event)

    def _started(self, event: events.WorkerStarted) -> None:
        self._log.info(
            "worker started",
            owner=event.owner,
            incarnation=event.incarnation,
            destinations=list(event.destinations),
        )

    def _reaped(self, event: events.Reaped) -> None:
        if event.destination_counts:
            self._log.error(
                "dead letters",
                count=sum(event.destination_counts.values()),
                destinations=dict(event.destination_counts),
                error="the lease of the last attempt expired: the message may kill its worker",
            )

    def _crashed(self, event: events.PublisherFailed) -> None:
        destination = event.message.destination
        self._quiet.say(
            self._log.error,
            "publisher failed, which is a bug in it",
            key=f"{destination} {type(event.error).__qualname__}",
            destination=destination,
            exc_info=event.error,
            **_named([event.message]),
        )

    def _lease_lost(self, stage: str, messages: Sequence[ClaimedMessage]) -> None:
        named = _named(messages)
        self._quiet.say(self._log.warning, "lease lost", key=stage, stage=stage, **named)

    def _breaker(self, event: events.BreakerChanged) -> None:
        if event.state == "closed":
            self._log.info("destination works again", destination=event.destination)
            return
        self._log.warning(
            "destination fails for all messages and is only tried now and then",
            destination=event.destination,
            error=clean(event.error),
        )

    def _database_failed(self, event: events.DatabaseFailed) -> None:
        self._quiet.say(
            self._log.warning,
            "database failed",
            key=event.doing,
            doing=event.doing,
            error=event.error,
            count=1,
        )

    def _drain(self, event: events.DrainStarted | events.DrainEnded) -> None:
        if isinstance(event, events.DrainStarted):
            fields = {"reason": clean(event.reason), "in_flight": event.in_flight}
            self._log.info("drain started", **fields)
            return
        self._quiet.flush()
        self._deliveries.flush()
        tell = self._log.warning if event.abandoned else self._log.info
        tell(
            "drain ended",
            published=self._deliveries.total,
            finished=event.finished,
            handed_back=event.handed_back,
            interrupted=event.interrupted,
            abandoned=event.abandoned,
            seconds=_short(event.seconds),
        )

    def _claimed(self, event: events.Claimed) -> None:
        if event.reclaimed:
            named = _named([each for each in event.messages if each.reclaims])
            fields = {**named, "count": event.reclaimed, "claimed": len(event.messages)}
            self._quiet.say(self._log.info, "reclaimed", burst=BURST, **fields)
        elif self._debug:
            self._log.debug("claimed", count=len(event.messages), seconds=_short(event.seconds))

    def _finalized(self, event: Finalized) -> None:
        for batch in (event.written, event.already_written):
            self._deliveries.add(batch)
            if trouble := [each for each in batch if type(each.outcome) is not Published]:
                self._troubled(trouble)
        if event.lost:
            self._lease_lost("finalize", [each.message for each in event.lost])
        if event.refused:
            messages = [each.settled.message for each in event.refused]
            self._quiet.say(
                self._log.error,
                "finalize refused by the database",
                destinations=dict(Counter(message.destination for message in messages)),
                error=event.refused[0].error,
                **_named(messages),
            )
        if event.unknown:
            named = _named([each.message for each in event.unknown])
            self._quiet.say(self._log.warning, "rows gone before finalize was answered", **named)
        if self._debug:
            self._log.debug("finalized", count=len(event.written), seconds=_short(event.seconds))

    def _troubled(self, trouble: list[Settled]) -> None:
        dead = [each for each in trouble if isinstance(each.transition, Bury)]
        if dead:
            self._quiet.say(
                self._log.error,
                "dead letters",
                burst=BURST,
                destinations=dict(Counter(each.message.destination for each in dead)),
                error=_error_of(dead[0]),
                **_named([each.message for each in dead]),
            )
        failed: dict[tuple[str, str], list[Settled]] = {}
        for each in trouble:
            if not isinstance(each.transition, Bury) and not isinstance(each.outcome, Unstarted):
                key = (each.message.destination, OUTCOMES[type(each.outcome)])
                failed.setdefault(key, []).append(each)
        for (destination, outcome), some in failed.items():
            self._quiet.say(
                self._log.warning,
                "publish failed",
                key=f"{destination} {outcome}",
                destination=destination,
                outcome=outcome,
                error=_error_of(some[0]),
                **_named([each.message for each in some]),
            )


def _error_of(settled: Settled) -> str:
    error = getattr(settled.transition, "error", None) or getattr(settled.outcome, "error", None)
    return error or "interrupted by the drain"


def _named(messages: Sequence[ClaimedMessage]) -> dict[str, Any]:
    """Some of them, by the ids that a consumer knows and by those that `pgoutbox dead` takes.

    With the trace that the first of these was stored in.
    """
    some = messages[:EXAMPLES]
    found = context.stored(some[0]) if some else None
    trace = {"trace_id": found.trace_id.hex(), "span_id": found.span_id.hex()} if found else {}
    return {
        "count": len(messages),
        "message_ids": [str(each.message_id) for each in some],
        "outbox_ids": [each.id for each in some],
        **trace,
    }


def _short(seconds: float) -> float:
    return round(seconds, 4)
