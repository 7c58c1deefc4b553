"""A message's life in sentences. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from pgoutbox.cli.status_view import duration

if TYPE_CHECKING:
    from pgoutbox.database.life import Decided, Life, Row


def story(life: Life, *, unserved: bool) -> list[str]:
    """What it is, what happened to it, where it stands, and what to do.

    ``unserved``: whether no worker serves its destination.
    """
    told = [] if life.row is None else _what(life.row)
    told += [_decision(one) for one in life.audit]
    if life.row is None:
        told.append(_gone(life.audit[-1]))
    else:
        told += _now(life.row, unserved=unserved)
    return told


def _what(row: Row) -> list[str]:
    what = f"message {row.id} ({row.message_id}) is {row.event_type} of"
    told = [
        f"{what} {row.aggregate_type} {row.aggregate_id}, for {row.destination}",
        f"it was enqueued at {row.created_at}, {duration(row.created_age)} ago",
    ]
    if row.dedup_key is not None:
        told.append(f"its dedup key is {row.dedup_key!r}, which its message id is made of")
    if row.ordering_key is not None:
        told.append(f"its ordering key is {row.ordering_key!r}: those with it go one by one")
    return told


def _decision(one: Decided) -> str:
    verb = {"requeue": "requeued", "skip": "skipped", "discard": "discarded"}.get(
        one.action, one.action
    )
    told = f"at {one.at} {one.db_user} {verb} it: {one.reason}"
    if error := one.details.get("last_error"):
        told += f" (it was dead after {_attempts(int(one.details['attempts']))}: {error})"
    return told


def _gone(last: Decided) -> str:
    if last.action == "discard":
        return f"message {last.outbox_id} ({last.message_id}) is gone: it was discarded"
    return (
        f"message {last.outbox_id} ({last.message_id}) is gone: after that it was delivered to"
        f" {last.destination}, and removed by the retention"
    )


def _now(row: Row, *, unserved: bool) -> list[str]:
    match row.status:
        case "pending":
            return _pending(row, unserved=unserved)
        case "processing":
            return [*_tried(row), *_processing(row, unserved=unserved)]
        case "dead":
            return _dead(row)
        case "done":
            return [f"it was delivered at {row.done_at}, after {_attempts(row.attempts)}"]
        case "archived":
            told = f"it was delivered at {row.done_at}, after {_attempts(row.attempts)}"
            return [f"{told}, and is in outbox_archive"]
        case _:
            assert_never(row.status)


def _tried(row: Row) -> list[str]:
    if not row.attempts and row.last_error is None:
        return []
    told = f"it had {_attempts(row.attempts)}"
    if row.reclaims:
        told += f", the last {row.reclaims} of which ended with their lease"
    return [told if row.last_error is None else f"{told}; the last error: {row.last_error}"]


def _pending(row: Row, *, unserved: bool) -> list[str]:
    told = _tried(row)
    if row.head is not None and row.head != row.id:
        told.append(f"it waits behind message {row.head} of its lane, which is {row.head_status}")
        if row.head_status == "dead":
            told.append(f"decide about that one: pgoutbox dead show {row.head}")
    elif row.due_in > 0:
        told.append(f"it will be tried at {row.available_at}, in {duration(row.due_in)}")
    else:
        told.append(f"it can be claimed since {row.available_at}, {duration(-row.due_in)} ago")
    return told + _nobody(row, unserved=unserved)


def _processing(row: Row, *, unserved: bool) -> list[str]:
    left = row.lease_left or 0.0
    if left > 0:
        return [f"{row.lease_owner} delivers it, with a lease for another {duration(left)}"]
    told = f"the lease of {row.lease_owner} ended {duration(-left)} ago"
    return [f"{told}: a worker will reclaim it", *_nobody(row, unserved=unserved)]


def _nobody(row: Row, *, unserved: bool) -> list[str]:
    if not unserved:
        return []
    return [f"no worker serves {row.destination}: see pgoutbox status, and the workers' settings"]


def _dead(row: Row) -> list[str]:
    died = f"it died at {row.available_at}, {duration(-row.due_in)} ago"
    why = row.last_error or "no error was recorded"
    told = [f"{died}, after {_attempts(row.attempts)}: {why}"]
    if row.blocks:
        told.append("it blocks the messages behind it in its lane")
    elif row.ordering_key is not None:
        told.append(f"its lane has gone on without it since {row.done_at}")
    do = "once what was wrong is repaired: pgoutbox dead requeue"
    if row.blocks:
        do = f"to let them go on: pgoutbox dead skip {row.id} --reason ...; {do}"
    return [*told, f"{do} {row.id} --reason ..."]


def _attempts(count: int) -> str:
    return f"{count} attempt{'' if count == 1 else 's'}"
