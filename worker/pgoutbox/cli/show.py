"""``pgoutbox show``: the whole life of one message."""

from __future__ import annotations

import contextlib
import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import FAILURE, OK, complain, say, say_json
from pgoutbox.cli.dead_errors import explained
from pgoutbox.cli.dead_options import id_of
from pgoutbox.cli.show_sentences import story

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import psycopg

    from pgoutbox.database.life import Life, Row

SECONDS = 30.0
SEEN_WITHIN = 60.0
"""Seconds after its last heartbeat for which a worker counts as alive."""


def _named(_ctx: click.Context, _param: click.Parameter, text: str) -> int | UUID:
    return id_of(text)


@click.command("show")
@click.argument("named", metavar="ID", callback=_named)
@click.option("--payload", "with_payload", is_flag=True, help="Payload and headers as well.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.001, 86_400),
    default=SECONDS,
    show_default=True,
    help="How long to search for a message id.",
)
@dsn_option
@schema_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    named: int | UUID,
    with_payload: bool,  # noqa: FBT001 - as above
    seconds: float,
    dsn: str | None,
    schema: str | None,
    as_json: bool,  # noqa: FBT001 - as above
) -> int:
    """Tell the whole life of a message, by its id in the outbox or its message id.

    Payload and headers are shown with --payload only, without what PGOUTBOX_DESK__REDACT names.
    Exits with 1 when there is no such message.
    """
    from pgoutbox.database import life  # noqa: PLC0415 - slow

    settings = settings_for(dsn, schema)
    within = settings.database.schema_name
    with connect(settings) as conn, explained(conn, within, doing="see messages"):
        lives = life.lives(conn, named, schema=within, seconds=seconds)
        unserved = _unserved(conn, within)
    paths = settings.desk.redact
    if as_json:
        say_json({"messages": [_told(one, paths, with_payload=with_payload) for one in lives]})
    else:
        _say(lives, unserved, paths if with_payload else None)
    if not lives:
        complain(f"nothing is known of {named}: it was delivered and removed, or it never was")
    return OK if lives else FAILURE


def _unserved(conn: psycopg.Connection, schema: str) -> list[str]:
    from psycopg import errors  # noqa: PLC0415 - slow

    from pgoutbox.database import statistics  # noqa: PLC0415 - slow

    try:
        return statistics.read(conn, schema=schema).unserved(within=SEEN_WITHIN)
    except errors.InsufficientPrivilege:
        return []


def _say(lives: Sequence[Life], unserved: Sequence[str], paths: Sequence[str] | None) -> None:
    for number, one in enumerate(lives):
        if number:
            say()
        row = one.row
        for sentence in story(one, unserved=row is not None and row.destination in unserved):
            say(sentence)
        if row is not None and paths is not None:
            shown = contents(row, paths)
            say(json.dumps(shown, default=str, ensure_ascii=False, indent=2))


def _told(one: Life, paths: Sequence[str], *, with_payload: bool) -> dict[str, object]:
    hidden = {"payload", "body", "headers"}
    row: dict[str, object] | None = None
    if one.row is not None:
        row = {name: value for name, value in asdict(one.row).items() if name not in hidden}
        row |= contents(one.row, paths) if with_payload else {}
    return {"row": row, "audit": list(map(asdict, one.audit))}


def contents(row: Row, paths: Sequence[str]) -> dict[str, object]:
    """Headers and payload as people may see them.

    Nothing can be hidden within what is not JSON, or too deep to read: with ``paths`` its size and
    its hash are shown in its place.
    """
    from pgoutbox.database.redaction import redact  # noqa: PLC0415 - slow

    shown: dict[str, object] = {"headers": redact(dict(row.headers), paths)}
    body = (row.payload or "").encode() if row.body is None else row.body
    with contextlib.suppress(ValueError, RecursionError):
        parsed = json.loads(body)
        # A text that happens to be a number is JSON as well, and no path leads into it.
        if not paths or isinstance(parsed, dict | list):
            parsed = redact(parsed, paths)
            json.dumps(parsed, indent=2)  # It is too deep here, or nowhere.
            return shown | {"payload": parsed}
    if not paths and (text := _text(body)) is not None:
        return shown | {"body": text}
    return shown | {"body_bytes": len(body), "body_sha256": hashlib.sha256(body).hexdigest()}


def _text(body: bytes) -> str | None:
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return None
    return None if "\x00" in text else text
