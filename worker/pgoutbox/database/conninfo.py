"""How to connect, and what holds on each connection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable

# Behind a pooler in transaction mode nothing that was set on the session is there at the next
# statement, so it is set again inside each transaction. Between its statements the transaction
# holds rows, which the others shall not miss for long when the worker is gone.
LOCAL_SETTINGS = b"""
SELECT set_config('search_path', %(search_path)s, true),
       set_config('statement_timeout', %(statement_timeout)s, true),
       set_config('idle_in_transaction_session_timeout', %(statement_timeout)s, true),
       set_config('plan_cache_mode', 'force_custom_plan', true),
       set_config('enable_seqscan', 'off', true),
       set_config('enable_bitmapscan', 'off', true),
       set_config('jit', 'off', true)
"""


@dataclass(frozen=True, slots=True)
class DatabaseOptions:
    """How to connect. ``dsn`` is called for every connection, so that a rotated secret is seen."""

    dsn: Callable[[], str]
    schema: str = "public"
    pool_max: int = 3
    statement_timeout: float = 5.0
    pooler: str = "auto"
    """``none``, ``transaction``, or ``auto``: found out at the first connection."""
    application_name: str = "pgoutbox"

    @property
    def search_path(self) -> str:
        """The schema alone; pg_temp last, so that no temporary table can stand in for ours."""
        return f'"{self.schema}", pg_temp'


def conninfo(options: DatabaseOptions, *, session_settings: bool) -> str:
    """The DSN with our timeouts, and with session settings where they last.

    Raises psycopg.ProgrammingError for a malformed DSN.
    """
    given = conninfo_to_dict(options.dsn())
    ours: dict[str, Any] = {
        "connect_timeout": max(2, int(options.statement_timeout)),
        "tcp_user_timeout": int(options.statement_timeout * 1000),
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "application_name": options.application_name,
    }
    # Text comes as it is stored, whatever encoding the environment names for other programs.
    merged = ours | given | {"client_encoding": "utf8"}
    if session_settings:
        settings = {
            "search_path": options.search_path,
            "statement_timeout": f"{options.statement_timeout:g}s",
            # A generic plan cannot know how many rows an array holds, and picks a bad one.
            "plan_cache_mode": "force_custom_plan",
            # Each statement follows an index that it was written for and stops early. Statistics
            # of a quiet time, or none after a restore, make it look as cheap to read and sort all
            # that matches.
            "enable_seqscan": "off",
            "enable_bitmapscan": "off",
            "jit": "off",
            "default_transaction_isolation": "read committed",
        }
        flags = (f"{name}={value}" for name, value in settings.items())
        escaped = ("-c " + flag.replace("\\", r"\\").replace(" ", r"\ ") for flag in flags)
        merged["options"] = " ".join([str(given.get("options") or ""), *escaped]).strip()
    return make_conninfo("", **merged)


def local_settings(options: DatabaseOptions) -> dict[str, str]:
    """The parameters of `LOCAL_SETTINGS`."""
    return {
        "search_path": options.search_path,
        "statement_timeout": f"{options.statement_timeout:g}s",
    }
