"""The settings of one of several databases that one exporter watches."""

from __future__ import annotations

import re
from pathlib import Path  # noqa: TC003 - pydantic reads the annotations
from typing import TYPE_CHECKING

from pydantic import Field, SecretStr

from pgoutbox.problem import Problem
from pgoutbox.settings.dsn import dsn_problems
from pgoutbox.settings.section import SCHEMA_LENGTH, SCHEMA_NAME, Section, read_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


class WatchedDatabase(Section):
    """Where one outbox is, for `pgoutbox exporter`."""

    dsn: SecretStr = Field(
        description="One of several databases that `pgoutbox exporter` watches, instead of"
        " `PGOUTBOX_DSN`. The name becomes the label `database`. Workers ignore it."
    )
    dsn_file: Path | None = Field(
        default=None, description="A file that holds it instead, read again for every look."
    )
    # "schema" is taken in pydantic.
    schema_name: str | None = Field(
        default=None,
        alias="schema",
        pattern=SCHEMA_NAME,
        max_length=SCHEMA_LENGTH,
        description="The schema that holds the outbox there.",
    )

    def read_dsn(self) -> str:
        """The DSN for a new connection: from the file, where there is one, as it is now.

        Raises OSError or ValueError when the file cannot be read.
        """
        return self.dsn.get_secret_value() if self.dsn_file is None else read_secret(self.dsn_file)


def watched_problems(
    field: str, name: str, database: WatchedDatabase, environ: Mapping[str, str], *, insecure: bool
) -> Iterator[Problem]:
    """What keeps one database from being watched. ``field`` is what its settings begin with."""
    if NAME.fullmatch(name) is None:
        yield Problem(
            field=field,
            rule="is no name for a database",
            value=name,
            advice="Use at most 40 lower-case letters, digits and underscores, a letter first.",
        )
    dsn = database.dsn.get_secret_value()
    yield from dsn_problems(f"{field}__DSN", dsn, environ, insecure=insecure)
