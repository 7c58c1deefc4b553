"""How ``pgoutbox dead`` is told which letters are meant, and why."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from pgoutbox.cli.connect import dsn_option, schema_option
from pgoutbox.producer.text import unstorable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgoutbox.database.letters import Selection

    Command = Callable[..., int]

LARGEST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Where the letters are, and which of them are meant: some by name, or all of a selection."""

    dsn: str | None
    schema: str | None
    as_json: bool
    limit: int | None
    destination: str | None
    event_type: str | None
    error: str | None
    older_than: str | None
    newer_than: str | None
    died_after: str | None
    died_before: str | None

    @property
    def filters(self) -> dict[str, str | None]:
        """What a `Selection` is made of."""
        outside = {"dsn", "schema", "as_json", "limit"}
        return {
            each.name: getattr(self, each.name) for each in fields(self) if each.name not in outside
        }

    @property
    def selection(self) -> Selection:
        """The conditions that were given."""
        from pgoutbox.database.letters import Selection  # noqa: PLC0415 - slow

        return Selection(**self.filters)

    @property
    def narrowed(self) -> bool:
        """Whether any condition says which letters, other than before when."""
        return any(value for name, value in self.filters.items() if name != "died_before")


def _text(_ctx: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    if text is not None and not text.strip():
        raise click.BadParameter("must not be empty")
    if text is not None and (why := unstorable(text)):
        raise click.BadParameter(why)
    return text


def _age(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
    # Everything is dead for longer than less than nothing.
    if text is not None and (text.lstrip().startswith("-") or text.rstrip().endswith("ago")):
        raise click.BadParameter("must not be negative")
    return _text(ctx, param, text)


def _reason(_ctx: click.Context, _param: click.Parameter, text: str) -> str:
    return (_text(_ctx, _param, text) or "").strip()


def id_of(text: str) -> int | UUID:
    """An id in the outbox, or a message id. Raises click.BadParameter when it is neither."""
    if text.isascii() and text.isdecimal():
        if not 1 <= int(text[: len(str(LARGEST_ID)) + 1]) <= LARGEST_ID:
            raise click.BadParameter(f"{text} is not in the range 1<=x<={LARGEST_ID}")
        return int(text)
    try:
        return UUID(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is neither an id in the outbox (a number) nor a message id (a UUID)"
        ) from None


def ids_of(
    _ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]
) -> tuple[int | UUID, ...]:
    """The same for an argument that may be given several times; each id once."""
    return tuple(dict.fromkeys(map(id_of, texts)))


_WHICH = (
    click.option("--destination", callback=_text, help="Only those to this destination."),
    click.option("--type", "event_type", callback=_text, help="Only those of this event type."),
    click.option(
        "--error", callback=_text, help="Only those whose last error contains this, in any case."
    ),
    click.option(
        "--older-than", metavar="TIME", callback=_age, help="Only those dead for longer: 2h, 3d."
    ),
    click.option(
        "--newer-than", metavar="TIME", callback=_age, help="Only those dead for less: 30m."
    ),
    click.option(
        "--died-after", metavar="MOMENT", callback=_text, help="Only those that died then or later."
    ),
    click.option(
        "--died-before", metavar="MOMENT", callback=_text, help="Only those dead by then."
    ),
    dsn_option,
    schema_option,
)


def which(function: Command) -> Command:
    """The options that say which letters are meant, and where they are."""
    for decorate in reversed(_WHICH):
        function = decorate(function)
    return function


reason_option = click.option(
    "--reason", required=True, callback=_reason, help="Kept in outbox_audit."
)


def chosen(options: dict[str, Any]) -> Chosen:
    """Take what is in `Chosen` out of a command's options."""
    return Chosen(**{field.name: options.pop(field.name) for field in fields(Chosen)})
