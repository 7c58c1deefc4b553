"""Every setting, its default and its meaning. Frozen: read once, then passed on.

The descriptions are the documentation: `pgoutbox.settings.table` prints them. Times are seconds.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping  # noqa: TC003 - pydantic reads the annotations
from pathlib import Path  # noqa: TC003 - as above
from typing import Literal

from pydantic import Field, SecretStr, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pgoutbox.dispatch.drain import DrainTimes
from pgoutbox.settings.destination import Destination, Words, with_defaults
from pgoutbox.settings.section import (
    SCHEMA_LENGTH,
    SCHEMA_NAME,
    Count,
    Seconds,
    Section,
    read_secret,
)
from pgoutbox.settings.watched import WatchedDatabase  # noqa: TC001 - as above

DRAIN = DrainTimes()


class Wakeup(Section):
    """How a worker learns of new messages."""

    mode: Literal["auto", "notify", "poll"] = Field(
        default="auto",
        description="How workers learn of new messages. `auto` listens for notifications where a"
        " self-test shows that they arrive, and polls elsewhere; `notify` does the same, but where"
        " they do not arrive `pgoutbox check` fails, and the worker logs an error at each test.",
    )
    max_interval: Seconds = Field(
        default=1.0,
        description="Seconds, at most, between two polls and between two sweeps for late commits.",
    )


class Http(Section):
    """Probes and metrics."""

    port: int = Field(
        default=8080,
        ge=0,
        le=65535,
        description="Port of the probes and the metrics; 0 takes any free one.",
    )


class Log(Section):
    """Logging."""

    format: Literal["auto", "console", "json"] = Field(
        default="auto",
        description="Form of the log lines; `auto` is `console` on a terminal, else `json`.",
    )


class Database(Section):
    """How the database is reached and used."""

    # "schema" is taken in pydantic.
    schema_name: str = Field(
        default="public",
        alias="schema",
        pattern=SCHEMA_NAME,
        max_length=SCHEMA_LENGTH,
        description="The schema that holds the outbox.",
    )
    pool_max: Count = Field(
        default=3,
        description="Connections of one worker, at most, beside the one that listens. Claim,"
        " finalize and renew run side by side, so at least 2 and better 3.",
    )
    pooler: Literal["auto", "none", "transaction"] = Field(
        default="auto",
        description="Whether a pooler in transaction mode (PgBouncer and the like) stands between"
        " the worker and PostgreSQL; `auto` finds out.",
    )
    statement_timeout: Seconds = Field(
        default=5.0, description="Seconds that one statement of the worker may take."
    )
    insecure: bool = Field(
        default=False,
        description="Allow a connection over the network without `sslmode=verify-full`.",
    )


class Lease(Section):
    """How long a worker holds a message without a word."""

    duration: Seconds = Field(
        default=30.0,
        description="Seconds until a message of a worker that died is claimed again. At least three"
        " times `PGOUTBOX_LEASE__RENEW`.",
    )
    renew: Seconds = Field(
        default=10.0, description="Seconds between two renewals of the leases in flight."
    )


class Drain(Section):
    """How a worker stops."""

    grace: Seconds = Field(
        default=DRAIN.grace,
        description="Seconds from the signal to stop until the process is killed: the pod's"
        " `terminationGracePeriodSeconds`.",
    )
    soft: Seconds = Field(
        default=DRAIN.soft,
        description="Seconds that a drain waits for work in flight before it cancels it. At most"
        f" {DRAIN.total - DRAIN.soft + DRAIN.margin:g} less than `PGOUTBOX_DRAIN__GRACE`.",
    )


class Retention(Section):
    """What becomes of messages that were delivered."""

    mode: Literal["keep", "delete", "archive"] = Field(
        default="keep",
        description="What becomes of delivered messages: they stay for a while, go at once, or move"
        " to the table `outbox_archive`. Dead ones stay for ever. See docs/retention.md.",
    )
    days: float = Field(
        default=7.0, gt=0, le=36500, description="Days that delivered messages are kept."
    )


class Tracing(Section):
    """Where spans belong. Whether there are any, `OTEL_*` decides."""

    parent: Literal["creation", "batch"] = Field(
        default="creation",
        description="What the span of a publish is a child of: `creation`, the trace that stored"
        " the message, or `batch`, the claim that brought it; it has a link to the other one. Where"
        " spans go, the variables of OpenTelemetry say; see docs/tracing.md.",
    )


class Desk(Section):
    """What people see who decide about dead letters."""

    redact: Words = Field(
        default=(),
        description="Parts of payloads and headers that no command shows, as paths between spaces"
        " or commas: `card.number`, `items.*.secret` or, at any depth, `**.password`. A list in the"
        " TOML file. Payloads are shown only where a command is asked for them.",
    )


class Settings(BaseSettings):
    """Everything that a worker is told. `load_settings` reads it; constructing it reads nothing."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        env_prefix="PGOUTBOX_",
        env_nested_delimiter="__",
    )

    dsn: SecretStr = Field(
        description="The database: a URL (`postgresql://user:password@host/db`, special characters"
        " percent-encoded) or `key=value` pairs."
    )
    dsn_file: Path | None = Field(
        default=None,
        description="A file that holds the DSN instead; it is read again for every new connection,"
        " so that a rotated password is taken up.",
    )
    listen_dsn: SecretStr | None = Field(
        default=None,
        description="A DSN that reaches PostgreSQL itself, for the one connection that listens,"
        " where `PGOUTBOX_DSN` leads to a pooler in transaction mode.",
    )
    listen_dsn_file: Path | None = Field(default=None, description="A file that holds it instead.")
    config: Path | None = Field(
        default=None,
        description="A TOML file with the same tree (`[lease]`, `renew = 10`). The environment wins"
        " over it.",
    )
    owner: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=255,
        description="The name that this worker's leases carry, for people.",
    )
    max_in_flight: Count = Field(
        default=200,
        description="Messages that one worker holds at the same time, at most: what it publishes,"
        " what waits for that, and what is being recorded.",
    )
    on_unclassified: Literal["exit", "retry"] = Field(
        default="exit",
        description="After an exception that a publisher did not classify, which is a bug: `exit`"
        " drains and stops, `retry` treats it as a failure that may pass.",
    )
    wakeup: Wakeup = Wakeup()
    http: Http = Http()
    log: Log = Log()
    database: Database = Database()
    lease: Lease = Lease()
    drain: Drain = Drain()
    retention: Retention = Retention()
    tracing: Tracing = Tracing()
    desk: Desk = Desk()
    destinations: Mapping[str, Destination] = Field(default_factory=dict)
    databases: Mapping[str, WatchedDatabase] = Field(default_factory=dict)

    @field_validator("destinations", mode="after")
    @classmethod
    def _what_nobody_chose(
        cls, destinations: Mapping[str, Destination], info: ValidationInfo
    ) -> Mapping[str, Destination]:
        limit: int = info.data.get("max_in_flight", 200)
        return {name: with_defaults(one, limit) for name, one in destinations.items()}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the signature is pydantic-settings'
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see below
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see below
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - see below
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Take only what is passed in.

        The built-in sources ignore unknown names, and stop at the first value that they cannot
        parse. `pgoutbox.settings.sources` does neither.
        """
        return (init_settings,)

    def read_dsn(self) -> str:
        """The DSN for a new connection: from the file, where there is one, as it is now.

        Raises OSError or ValueError when the file cannot be read.
        """
        return self.dsn.get_secret_value() if self.dsn_file is None else read_secret(self.dsn_file)

    def read_listen_dsn(self) -> str:
        """As `read_dsn`, for the connection that listens."""
        if self.listen_dsn_file is not None:
            return read_secret(self.listen_dsn_file)
        return self.read_dsn() if self.listen_dsn is None else self.listen_dsn.get_secret_value()
