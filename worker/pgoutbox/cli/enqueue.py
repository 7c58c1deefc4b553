"""``pgoutbox enqueue``: messages by hand, or from a file."""

from __future__ import annotations

import io
import itertools
import re
import sys
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from pgoutbox.cli.connect import connect, dsn_option, schema_option, settings_for
from pgoutbox.cli.console import headers_of, progress, say, say_json
from pgoutbox.cli.messages import (
    REQUIRED,
    BadInput,
    Line,
    csv_lines,
    json_lines,
    json_payload,
    message_from,
)
from pgoutbox.errors import InvalidMessage

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from uuid import UUID

    import psycopg

    from pgoutbox.cli.console import Advance

BATCH = 500

# Inside the transaction, so that it also holds behind a pooler.
SEARCH_PATH = b"SELECT set_config('search_path', quote_ident(%(schema)s) || ', pg_temp', true)"


class Options(TypedDict):
    """What the options say about the message, or about every line that leaves it out."""

    aggregate_type: str | None
    aggregate_id: str | None
    event_type: str | None
    payload: str | None
    destination: str | None
    content_type: str | None
    ordering_key: str | None
    ordered: bool
    dedup_key: str | None
    delay: float | None
    header: tuple[str, ...]


@dataclass(slots=True)
class Enqueued:
    """What became of the messages."""

    ids: list[UUID] = field(default_factory=list)
    """One for each message given; a repeated dedup key's is that of the first message."""
    keyed: int = 0
    """How many have a dedup key, and may be repeats."""


@click.command("enqueue")
@dsn_option
@schema_option
@click.option("--aggregate-type", "--type", help="What the message is about: `order`.")
@click.option("--aggregate-id", help="Which one: `4711`.")
@click.option("--event-type", help="What happened: `order.placed`.")
@click.option("--payload", metavar="JSON", help="JSON, or @FILE, or - for standard input.")
@click.option("--destination", help="Its name.  [default: default]")
@click.option("--content-type", help="Take the payload's bytes as they are, as this type.")
@click.option("--header", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--ordering-key", help="Deliver in order with others of this key.")
@click.option("--ordered", is_flag=True, help="Deliver in order with others of this aggregate.")
@click.option("--dedup-key", help="Insert nothing if this key is in the outbox already.")
@click.option("--delay", type=float, metavar="SECONDS", help="Deliver not before that.")
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Read many messages; - for standard input.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "csv"]),
    help="The file's form.  [default: csv where the name ends in .csv, else jsonl]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(
    dsn: str | None,
    schema: str | None,
    *,
    file: str | None,
    form: str | None,
    as_json: bool,
    **options: Unpack[Options],
) -> None:
    """Put one message, or a file of messages, into the outbox.

    A file is inserted as a whole or not at all. The options say what its lines leave out.
    Payloads keep the digits of their numbers.

    A message whose dedup key is in the outbox already inserts nothing, and is counted and answered
    with its id like the others: what is told are the messages given, repeats included.

    JSON lines hold one object each, with the fields aggregate_type, aggregate_id, event_type and
    payload, and optionally destination, headers, ordering_key, ordered (true or false), dedup_key,
    content_type, delay (seconds), available_at (ISO 8601) and message_id.

    CSV has a header row with the same names; payload and headers hold JSON text. Without a column
    payload, all columns that are no field of a message become the payload, as strings.
    """
    given = _given(options)
    if file is None:
        missing = [f"--{name.replace('_', '-')}" for name in REQUIRED if name not in given]
        if missing:
            raise click.UsageError(f"{', '.join(missing)} missing, or --file")
        lines: Iterable[Line] = [Line(0, message_from(given))]
    else:
        lines = _lines(file, form, given)
    settings = settings_for(dsn, schema)
    with connect(settings) as conn:
        found = _insert(conn, settings.database.schema_name, lines, source=file)
    _tell(found, many=file is not None, as_json=as_json)


def _tell(found: Enqueued, *, many: bool, as_json: bool) -> None:
    if as_json:
        say_json({"given": len(found.ids), "message_ids": [str(one) for one in found.ids]})
    elif many:
        repeats = ", or found them there by their dedup key" if found.keyed else ""
        say(f"enqueued {len(found.ids)} message{'' if len(found.ids) == 1 else 's'}{repeats}")
    else:
        say(str(found.ids[0]))


def _given(options: Options) -> dict[str, object]:
    given: dict[str, object] = {
        name: value for name, value in options.items() if name != "header" and value is not None
    }
    if options["header"]:
        given["headers"] = headers_of(options["header"])
    if (payload := options["payload"]) is not None:
        given["payload"] = _payload(payload, raw=options["content_type"] is not None)
    return given


def _payload(text: str, *, raw: bool) -> object:
    if text == "-":
        content = sys.stdin.buffer.read()
    elif text.startswith("@"):
        try:
            content = Path(text[1:]).read_bytes()
        except OSError as error:
            raise click.BadParameter(
                f"{text[1:]}: {error.strerror}", param_hint="--payload"
            ) from None
    else:
        content = text.encode(errors="surrogateescape")
    if raw:
        return content
    try:
        return json_payload(content.decode())
    except UnicodeDecodeError:
        raise click.BadParameter("is not UTF-8", param_hint="--payload") from None
    except BadInput as error:
        raise click.BadParameter(str(error), param_hint="--payload") from None


def _lines(file: str, form: str | None, given: dict[str, object]) -> Iterator[Line]:
    read = csv_lines if (form or Path(file).suffix.lower()) in {"csv", ".csv"} else json_lines
    binary = sys.stdin.buffer if file == "-" else Path(file).open("rb")  # noqa: SIM115 - closed below
    # A spreadsheet's CSV begins with a byte order mark, and CSV reads its line ends itself.
    with io.TextIOWrapper(binary, encoding="utf-8-sig", newline="") as lines:
        try:
            yield from read(lines, given)
        except BadInput as error:
            raise BadInput(f"{_called(file)}, {error}; nothing was inserted") from None
        except UnicodeDecodeError:
            raise BadInput(f"{_called(file)} is not UTF-8; nothing was inserted") from None


def _called(file: str) -> str:
    return "standard input" if file == "-" else file


def _insert(
    conn: psycopg.Connection, schema: str, lines: Iterable[Line], *, source: str | None
) -> Enqueued:
    """All of them in one transaction, or none."""
    from psycopg.errors import OutOfMemory, UndefinedTable  # noqa: PLC0415 - slow

    from pgoutbox import enqueue_many  # noqa: PLC0415 - slow

    found = Enqueued()
    remaining = iter(lines)
    with conn.transaction(), _progress(source) as advance:
        conn.execute(SEARCH_PATH, {"schema": schema})
        while batch := list(itertools.islice(remaining, BATCH)):
            try:
                found.ids += enqueue_many(conn, [line.message for line in batch])
            except InvalidMessage as error:
                raise _refused(error, batch, source=source) from None
            except UndefinedTable:
                raise BadInput(
                    f'there is no outbox in schema "{schema}" of this database:'
                    " run `pgoutbox migrate`"
                ) from None
            except OutOfMemory as error:
                raise BadInput(
                    f"the database: {error.diag.message_primary}; nothing was inserted. Each"
                    " ordering key takes a place in its lock table: split the file, or raise"
                    " max_locks_per_transaction"
                ) from None
            found.keyed += sum(line.message.dedup_key is not None for line in batch)
            advance(len(batch))
    return found


def _progress(source: str | None) -> AbstractContextManager[Advance]:
    """No bar where a person is typing the lines: it would be drawn over them."""
    if source == "-" and sys.stdin.isatty():
        return nullcontext(lambda _count: None)
    return progress("enqueued")


def _refused(error: InvalidMessage, batch: list[Line], *, source: str | None) -> BadInput:
    """The number of the line in place of the number of the message in the batch."""
    found = re.fullmatch(r"messages\[(\d+)\]\.?(.*)", error.path)
    path, number = (found[2], batch[int(found[1])].number) if found else (error.path, 0)
    where = "" if source is None else f"{_called(source)}, line {number}: "
    return BadInput(f"{where}{path}: {error.problem}; nothing was inserted")
