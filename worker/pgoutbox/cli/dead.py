"""``pgoutbox dead``: what a person sees of dead letters, and decides about them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import click

from pgoutbox.cli import show
from pgoutbox.cli.connect import connect, settings_for
from pgoutbox.cli.dead_errors import explained
from pgoutbox.cli.dead_list import tell_list
from pgoutbox.cli.dead_many import Work, decide_about_all
from pgoutbox.cli.dead_one import decide_about_each
from pgoutbox.cli.dead_options import chosen, ids_of, reason_option, which

if TYPE_CHECKING:
    from collections.abc import Callable
    from uuid import UUID

    from pgoutbox.cli.dead_options import Chosen

    Command = Callable[..., int]

LISTED = 50


@click.group("dead")
def command() -> None:
    """See dead messages, and decide about them. Each decision is kept in outbox_audit.

    ID is a message's id in the outbox, which `dead list` and `pgoutbox status` name, or its message
    id, as in the logs and at the consumer. Conditions in place of IDs choose all that fit all of
    them. A lane is what the messages with one ordering key form. Exits with 1 when nothing was
    done.
    """


command.add_command(show.command, "show")


@command.command("list")
@which
@click.option("--limit", type=click.IntRange(1, 10_000), default=LISTED, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def list_(**options: Any) -> int:  # noqa: ANN401 - each is declared above
    """List dead messages, and why they died."""
    about = chosen(options)
    settings = settings_for(about.dsn, about.schema)
    with connect(settings) as conn, explained(conn, settings.database.schema_name):
        return tell_list(conn, about, schema=settings.database.schema_name)


def _action(function: Command) -> Command:
    """The arguments of every action."""
    for decorate in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, an object per line."),
        click.option("--yes", "-y", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Change nothing, and say what would be."),
        click.option(
            "--batch", type=click.IntRange(1, 5000), default=200, help="At most so many at once."
        ),
        click.option("--rate", type=click.FloatRange(0.01, 1e6), help="At most so many a second."),
        click.option("--limit", type=click.IntRange(1), help="At most so many."),
        which,
        click.option("--all", "everything", is_flag=True, help="All dead messages."),
        reason_option,
        click.argument("ids", metavar="[ID]...", nargs=-1, callback=ids_of),
    ):
        function = decorate(function)
    return function


@command.command("requeue")
@_action
def requeue(**options: Any) -> int:  # noqa: ANN401 - as above
    """Deliver dead messages after all, with all their attempts and the same message ids.

    One that blocks its lane goes before all that wait behind it. One that was skipped is
    delivered out of order.
    """
    return _decide("requeue", options)


@command.command("skip")
@_action
def skip(**options: Any) -> int:  # noqa: ANN401 - as above
    """Let lanes go on without their dead messages, which stay dead."""
    return _decide("skip", options)


@command.command("discard")
@_action
def discard(**options: Any) -> int:  # noqa: ANN401 - as above
    """Delete dead messages for good; outbox_audit keeps what they were about.

    Lanes that they blocked go on.
    """
    return _decide("discard", options)


def _decide(action: Literal["requeue", "skip", "discard"], options: dict[str, Any]) -> int:
    about = chosen(options)
    ids: tuple[int | UUID, ...] = options.pop("ids")
    _say_which(about, ids, everything=options.pop("everything"))
    work = Work(action=action, **options)
    settings = settings_for(about.dsn, about.schema)
    schema = settings.database.schema_name
    with connect(settings) as conn, explained(conn, schema):
        if ids:
            return decide_about_each(conn, work, ids, schema=schema, as_json=about.as_json)
        return decide_about_all(conn, work, about, schema=schema)


def _say_which(about: Chosen, ids: tuple[int | UUID, ...], *, everything: bool) -> None:
    narrowed = about.narrowed or about.died_before is not None
    if bool(ids) + everything + about.narrowed > 1 or (ids and (narrowed or about.limit)):
        raise click.UsageError("IDs, conditions and --all exclude each other: say one of them")
    if not (ids or everything or about.narrowed):
        raise click.UsageError(
            "say which: IDs, a condition (--destination, --type, --error, --older-than,"
            " --newer-than, --died-after), or --all"
        )
