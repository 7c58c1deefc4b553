"""What `pgoutbox check` and `pgoutbox status` say about the xmin horizon, and who holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.cli.console import say
from pgoutbox.cli.status_view import duration
from pgoutbox.problem import Problem

if TYPE_CHECKING:
    import psycopg

    from pgoutbox.database.horizon import Access, Holder, Horizon
    from pgoutbox.settings import Settings


class Seen(NamedTuple):
    """One look."""

    horizon: Horizon | None
    """None where it is not known."""
    lacks: str = ""
    """Why not, or why not all of it is known, and what to do about it."""


def ask(settings: Settings) -> Seen:
    """Look for once."""
    import psycopg  # noqa: PLC0415 - slow

    from pgoutbox.database.facts import connect  # noqa: PLC0415 - slow

    try:
        with connect(settings.read_dsn()) as conn, conn.transaction():
            conn.execute("SET LOCAL statement_timeout = '5s'")
            return look(conn, schema=settings.database.schema_name)
    except psycopg.Error as error:
        return Seen(None, " ".join(str(error).split()))


def look(conn: psycopg.Connection, *, schema: str) -> Seen:
    """Ask for the horizon, and if that fails for what is in the way. Raises psycopg.Error."""
    from pgoutbox.database.horizon import access, read  # noqa: PLC0415 - slow

    horizon = read(conn, schema=schema)
    if horizon is None:
        return Seen(None, unreadable(access(conn, schema=schema)))
    return Seen(horizon, hidden(access(conn, schema=schema)) if horizon.hidden else "")


def unreadable(found: Access | None) -> str:
    """Missing or forbidden, and what to do."""
    if found is None or not found.exists:
        return "outbox_horizon() is missing: run `pgoutbox migrate`"
    grants = [] if found.enters else [f"GRANT USAGE ON SCHEMA {found.schema} TO {found.role}"]
    if not found.calls:
        function = f"{found.schema}.outbox_horizon()"
        grants.append(f"GRANT EXECUTE ON FUNCTION {function} TO {found.role}")
    return f"this role may not call outbox_horizon(): ask the owner for {' and '.join(grants)}"


def hidden(found: Access | None) -> str:
    """Whom the statistics are hidden from, and what to do."""
    owner = found.owner if found is not None and found.owner else "the owner"
    return (
        f"not all of it is known, which by itself does no harm: {owner}, who owns the tables, may"
        f" not see the sessions of other roles. As a superuser: GRANT pg_read_all_stats TO {owner}"
    )


def fact(seen: Seen) -> str:
    """For the list of what is good to know."""
    horizon = seen.horizon
    if horizon is None:
        return f"unknown: {seen.lacks}"
    told = f"{'' if horizon.late else 'fine, '}{horizon.transactions} transactions back"
    if horizon.seconds:
        told += f", for up to {duration(horizon.seconds)}"
    return f"{told}; {seen.lacks}" if seen.lacks else told


def warnings(horizon: Horizon | None) -> tuple[Problem, ...]:
    """A warning where the horizon is held back for too long, else nothing."""
    holder = horizon.late if horizon is not None else None
    if holder is None:
        return ()
    since = "" if holder.seconds is None else f" for up to {duration(holder.seconds)}"
    return (
        Problem(
            field="the xmin horizon",
            rule=f"is held back{since} ({holder.transactions} transactions) by {named(holder)}, so"
            " that vacuum cannot remove dead rows and claims slow down",
            advice=remedy(holder),
        ),
    )


def show(seen: Seen) -> None:
    """Print the warning, and why nobody could look; nothing where all is well."""
    for warning in warnings(seen.horizon):
        say(f"warning: {warning}")
    if seen.horizon is None:
        say(f"the xmin horizon is {fact(seen)}")


def as_object(horizon: Horizon | None) -> dict[str, object] | None:
    """For --json. Its keys are public."""
    if horizon is None:
        return None
    return {
        "hidden": horizon.hidden,
        "age_seconds": horizon.seconds,
        "age_transactions": horizon.transactions,
        "holders": [asdict(holder) for holder in horizon.holders],
        "warnings": [str(warning) for warning in warnings(horizon)],
    }


def named(holder: Holder) -> str:
    """Who it is: ``backend 4711 (role app, application report, idle in transaction)``."""
    what = {
        "backend": f"backend {holder.pid}",
        "prepared": f"the prepared transaction {_literal(holder.name)}",
        "slot": f"the replication slot {_literal(holder.name)}",
        "standby": f"the standby of walsender {holder.pid}",
    }.get(holder.kind, f"a {holder.kind}")
    known = {"database": holder.database, "role": holder.role, "application": holder.application}
    details = [f"{name} {_plain(value)}" for name, value in known.items() if value]
    details += [holder.state] if holder.state else []
    return f"{what} ({', '.join(details)})" if details else what


def remedy(holder: Holder) -> str:
    """What to do about it."""
    match holder.kind:
        case "backend":
            return (
                f"If its work may be lost: SELECT pg_terminate_backend({holder.pid})."
                " idle_in_transaction_session_timeout, set for its role, ends forgotten ones;"
                " long reports belong on a standby."
            )
        case "prepared":
            name = _literal(holder.name)
            return (
                f"Connected to database {holder.database}: COMMIT PREPARED {name} or"
                f" ROLLBACK PREPARED {name}, whichever its coordinator decided."
            )
        case "slot":
            return (
                "Start its consumer, or if it has none any more:"
                f" SELECT pg_drop_replication_slot({_literal(holder.name)})."
            )
        case "standby":
            return "End the long queries there, or set hot_standby_feedback = off there."
    return ""


def _literal(name: str | None) -> str:
    """To be pasted into SQL, as long as a terminal shows it as it is."""
    text = name or ""
    return "'" + text.replace("'", "''") + "'" if text.isprintable() else repr(text)


def _plain(text: str) -> str:
    return text if text.isprintable() else repr(text)
