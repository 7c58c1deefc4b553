"""The list of dead letters."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pgoutbox.cli.console import OK, say, say_json
from pgoutbox.cli.status_view import Table, duration, print_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from pgoutbox.cli.dead_options import Chosen
    from pgoutbox.database.letters import Listed

ERROR_LENGTH = 60
COLUMNS = ("id", "dead for", "destination", "type", "attempts", "ordering key", "last error")


def tell_list(conn: psycopg.Connection, about: Chosen, *, schema: str) -> int:
    """The letters of a selection, and how many more there are."""
    from pgoutbox.database import letters  # noqa: PLC0415 - slow

    limit = about.limit or 0
    counted = letters.count(conn, about.selection, schema=schema, action=None)
    found = letters.listed(conn, about.selection, schema=schema, limit=limit)
    if about.as_json:
        say_json({"letters": list(map(asdict, found)), "count": counted.letters})
    else:
        tell_letters(found, schema=schema, of=counted.letters)
    return OK


def tell_letters(found: Sequence[Listed], *, schema: str, of: int) -> None:
    """A table of some of them."""
    if not found:
        say(f'no dead message fits in schema "{schema}"')
        return
    print_tables([Table("Dead messages", COLUMNS, [_row(letter) for letter in found])])
    if any(letter.blocks for letter in found):
        say("* blocks the messages behind it: requeue, skip or discard it")
    if of > len(found):
        say(f"{of - len(found)} more")


def _row(letter: Listed) -> list[str]:
    error = " ".join((letter.last_error or "").split())
    short = error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 1] + "…"
    return [
        str(letter.id),
        duration(letter.dead_for),
        letter.destination,
        letter.event_type,
        str(letter.attempts),
        (letter.ordering_key or "") + ("*" if letter.blocks else ""),
        short,
    ]
