"""Deciding about dead letters that are named one by one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING
from uuid import UUID

from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.cli.dead_many import Work
    from pgoutbox.database.desk import Decision


def decide_about_each(
    conn: psycopg.Connection,
    work: Work,
    ids: tuple[int | UUID, ...],
    *,
    schema: str,
    as_json: bool,
) -> int:
    """Each in a transaction of its own. Returns 1 when anything was not done."""
    code = OK
    for named in ids:
        decision = _decided(conn, work, named, schema=schema)
        _tell(decision, dry_run=work.dry_run, as_json=as_json)
        if not decision.done:
            code = FAILURE
    return code


def _decided(conn: psycopg.Connection, work: Work, named: int | UUID, *, schema: str) -> Decision:
    from pgoutbox.database import desk  # noqa: PLC0415 - slow

    if isinstance(named, UUID):
        found = desk.find(conn, named, schema=schema)
        if isinstance(found, desk.Decision):
            return found
        named = found
    decide = {"requeue": desk.requeue, "skip": desk.skip, "discard": desk.discard}[work.action]
    return decide(conn, named, work.reason, schema=schema, dry_run=work.dry_run)


def _tell(decision: Decision, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        told = asdict(decision)
        say_json(told | {"done": False, "would_do": decision.done} if dry_run else told)
    elif decision.done:
        say(
            f"nothing was changed; without --dry-run: {decision.said}" if dry_run else decision.said
        )
    else:
        complain(decision.said)
