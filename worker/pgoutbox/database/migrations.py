"""The numbered SQL files, compared with what a database says that it was given.

A released file is never edited: the database remembers the checksum of each.
Migrations expand first and contract in a later release, so a worker also runs on a newer schema.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox._version import __version__
from pgoutbox.errors import MigrationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from importlib.resources.abc import Traversable

OLDEST_SERVER = 14

_FILE_NAME = re.compile(r"(\d{4})_([a-z0-9_]+)\.sql")
_SCHEMA_NAME = re.compile(r"(?!pg_)[A-Za-z_][A-Za-z0-9_]{0,62}")


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered file."""

    version: int
    name: str
    text: str

    @property
    def title(self) -> str:
        """The file's name without its suffix, as in ``0001_outbox``."""
        return f"{self.version:04}_{self.name}"

    @property
    def checksum(self) -> str:
        """SHA-256 in hex, the same for either kind of line ending."""
        return hashlib.sha256(self.text.replace("\r\n", "\n").encode()).hexdigest()


class Applied(NamedTuple):
    """One row of ``outbox_migrations``."""

    version: int
    name: str
    checksum: str

    @property
    def title(self) -> str:
        """As `Migration.title`."""
        return f"{self.version:04}_{self.name}"


def available() -> list[Migration]:
    """The files of this version, in order."""
    return in_order(_folder().iterdir())


def roles() -> str:
    """``roles.sql`` of this version."""
    return (_folder() / "roles.sql").read_text(encoding="utf-8")


def _folder() -> Traversable:
    """In the wheel, else in the checkout."""
    packaged = files("pgoutbox") / "_migrations"
    return packaged if packaged.is_dir() else Path(__file__).parents[3] / "migrations"


def in_order(found: Iterable[Traversable]) -> list[Migration]:
    """The numbered files among ``found``. MigrationError unless they are 1, 2, 3, ..."""
    migrations = [
        Migration(int(match[1]), match[2], file.read_text(encoding="utf-8"))
        for file in sorted(found, key=lambda file: file.name)
        if (match := _FILE_NAME.fullmatch(file.name))
    ]
    versions = [migration.version for migration in migrations]
    if not versions or versions != list(range(1, len(versions) + 1)):
        raise MigrationError(
            f"the migration files are numbered {versions or 'not at all'}, not 1, 2, 3 and so on: "
            "install pgoutbox again"
        )
    return migrations


def unapplied(
    known: Sequence[Migration], applied: Sequence[Applied], *, schema: str
) -> list[Migration]:
    """What is still to do. MigrationError if the database has what this version does not know."""
    _refuse_changed(known, applied, schema=schema)
    newest = max((row.version for row in applied), default=0)
    if newest > known[-1].version:
        raise MigrationError(
            f'schema "{schema}" is at version {newest}, newer than this pgoutbox {__version__}, '
            f"which knows versions up to {known[-1].version}: migrate with the newer pgoutbox"
        )
    todo = [migration for migration in known if migration.version > newest]
    if len(applied) + len(todo) != len(known):
        raise MigrationError(
            f'outbox_migrations in schema "{schema}" has gaps below version {newest}: '
            "somebody deleted rows; restore them from a backup or from another environment"
        )
    return todo


def judge(known: Sequence[Migration], applied: Sequence[Applied], *, schema: str) -> None:
    """Raise MigrationError if the schema is missing, older than ``known`` or altered."""
    advice = f"run `pgoutbox migrate --schema {schema}` as the schema's owner"
    if not applied:
        raise MigrationError(f'there is no outbox in schema "{schema}" of this database: {advice}')
    _refuse_changed(known, applied, schema=schema)
    newest = max(row.version for row in applied)
    if newest < known[-1].version:
        raise MigrationError(
            f'schema "{schema}" is at version {newest}, older than the version '
            f"{known[-1].version} that pgoutbox {__version__} needs: {advice}"
        )


def check_schema_name(schema: str) -> None:
    """Raise MigrationError unless ``schema`` is a plain name."""
    if not _SCHEMA_NAME.fullmatch(schema):
        raise MigrationError(
            f"{schema!r} cannot be the outbox's schema: use letters, digits and underscores, "
            "63 at most, not beginning with a digit or with pg_"
        )


def check_server(version: int, encoding: str) -> None:
    """Raise MigrationError for a server (``server_version_num``) or encoding that cannot work."""
    if version < OLDEST_SERVER * 10_000:
        raise MigrationError(
            f"the server is PostgreSQL {version // 10_000}: pgoutbox needs {OLDEST_SERVER} or newer"
        )
    if encoding != "UTF8":
        raise MigrationError(
            f"the database's encoding is {encoding}: pgoutbox needs a database with ENCODING 'UTF8'"
        )


def _refuse_changed(known: Sequence[Migration], applied: Sequence[Applied], *, schema: str) -> None:
    mine = {migration.version: migration for migration in known}
    for row in applied:
        migration = mine.get(row.version)
        if migration is not None and migration.checksum != row.checksum:
            raise MigrationError(
                f"{migration.title}.sql is not the {row.title}.sql that schema "
                f'"{schema}" was migrated with (checksum {migration.checksum[:12]} here, '
                f"{row.checksum[:12]} there): install the pgoutbox release that this database "
                "was migrated with, and put changes into a migration of their own"
            )
