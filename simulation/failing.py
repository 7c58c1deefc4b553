"""What becomes of a failed attempt: the worker's own breaker and its own decisions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from pgoutbox.destinations.destination import RetryPolicy
from pgoutbox.dispatch.decide import decide
from pgoutbox.message import ClaimedMessage
from pgoutbox.outcome import PermanentFailure, Release, Retry, RetryableFailure

if TYPE_CHECKING:
    from simulation.messages import Message
    from simulation.pod import Pod

POLICY = RetryPolicy()
TEMPLATE = ClaimedMessage(
    id=0,
    lease_version=1,
    attempts=1,
    reclaims=0,
    message_id=UUID(int=0),
    destination="default",
    ordering_key=None,
    aggregate_type="order",
    aggregate_id="1",
    event_type="placed",
    content_type="application/json",
    body=b"{}",
    headers_json="{}",
    created_at=datetime.fromtimestamp(0, UTC),
    age=0.0,
)


def delay_after_failure(pod: Pod, message: Message, now: float, jitter: float) -> float | None:
    """Seconds until the next attempt; None: there is none. Refunds the attempt where it is due."""
    works = pod.breakers[message.destination].failed(message.row, now)
    outcome = RetryableFailure("no answer", works_for_others=works, timed_out=True)
    claimed = TEMPLATE._replace(
        id=message.row, attempts=message.attempts, age=now - message.created
    )
    match decide(outcome, claimed, POLICY, jitter):
        case Retry(delay):
            return delay
        case Release(delay):
            message.attempts -= 1
            return delay or 0.0
        case _:
            return None


def is_buried(message: Message) -> bool:
    """Refused for good: as the worker decides it."""
    outcome = PermanentFailure("refused")
    claimed = TEMPLATE._replace(id=message.row, attempts=message.attempts)
    return not isinstance(decide(outcome, claimed, POLICY, 0.0), Retry | Release)
