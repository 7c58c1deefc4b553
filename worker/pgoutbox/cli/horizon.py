"""What `pgoutbox check` and `pgoutbox status` say about the xmin horizon, and who holds it."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from pgoutbox.cli.console import say
from pgoutbox.cli.status_view import duration
from pgoutbox.problem import Problem

if TYPE_CHECKING:
    from pgoutbox.database.horizon import Holder, Horizon
    from pgoutbox.settings import Settings

UNKNOWN = "unknown: outbox_horizon() is missing, or this role may not call it"
HIDDEN = "not all of it is known: the owner of the tables lacks pg_read_all_stats"


def ask(settings: Settings) -> Horizon | None:
    """Look for once. None where that is not possible, which others explain."""
    import psycopg  # noqa: PLC0415 - slow

    from pgoutbox.database.facts import connect  # noqa: PLC0415 - slow
    from pgoutbox.database.horizon import read  # noqa: PLC0415 - slow

    try:
        with connect(settings.read_dsn()) as conn, conn.transaction():
            conn.execute("SET LOCAL statement_timeout = '5s'")
            return read(conn, schema=settings.database.schema_name)
    except psycopg.Error:
        return None


def fact(horizon: Horizon | None) -> str:
    """For the list of what is good to know."""
    if horizon is None:
        return UNKNOWN
    told = f"{horizon.transactions} transactions back"
    if horizon.seconds:
        told += f", for up to {duration(horizon.seconds)}"
    return f"{told}; {HIDDEN}" if horizon.hidden else told


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


def show(horizon: Horizon | None) -> None:
    """Print the warning, and whether nobody could look; nothing where all is well."""
    for warning in warnings(horizon):
        say(f"warning: {warning}")
    if horizon is None:
        say(f"the xmin horizon is {UNKNOWN}")


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
