"""Where a DSN comes from: a Secret beside the object, or a file that the operator has mounted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from pgoutbox.errors import PgOutboxError
from pgoutbox.settings.dsn import dsn_problems
from pgoutbox.settings.section import read_secret
from pgoutbox_operator.cluster import ClusterError
from pgoutbox_operator.crd import ConditionReason

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pgoutbox_operator.cluster import Cluster
    from pgoutbox_operator.crd import ScalerSpec

INSECURE = (
    "Have it verify the server (sslmode=verify-full), or accept the risk for all databases by"
    " running the operator with --insecure-databases."
)
REREAD_SECONDS = 60.0
"""How soon a Secret that was changed is read again, whether or not the old DSN still works."""


SECRET_SECONDS = 3.0
"""Less than a look may take: an API server that hangs must not take the database away."""


class NoConnection(PgOutboxError):  # noqa: N818 - reads better where it is caught
    """There is no DSN to connect with."""

    def __init__(self, reason: ConditionReason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Place(NamedTuple):
    """Which outbox: objects that name the same one share a connection."""

    namespace: str
    """Of the Secret; empty for a file of the operator's."""
    name: str
    """Of the Secret, or of the file."""
    key: str
    schema: str

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return where if self.schema == "public" else f"{where}/{self.schema}"


def place_of(namespace: str, spec: ScalerSpec) -> Place:
    """The one that the spec names."""
    database = spec.database
    if database.secret_key_ref is not None:
        secret = database.secret_key_ref
        return Place(namespace, secret.name, secret.key, database.schema_name)
    return Place("", database.connection_name or "", "", database.schema_name)


class Connection:
    """The DSN of one place, read again when it may have changed."""

    def __init__(
        self,
        place: Place,
        cluster: Cluster,
        *,
        folder: Path,
        insecure: bool,
        clock: Callable[[], float],
    ) -> None:
        self._place = place
        self._cluster = cluster
        self._folder = folder
        self._insecure = insecure
        self._clock = clock
        self._dsn: str | None = None
        self._read_at = 0.0

    def forget(self) -> None:
        """Read it again next time: it did not work."""
        self._read_at = float("-inf")

    async def dsn(self) -> str:
        """Raises NoConnection; ClusterError where a Secret was never read."""
        if not self._place.namespace:
            return self._checked(self._from_file())
        if self._dsn is None or self._clock() - self._read_at >= REREAD_SECONDS:
            self._dsn = self._checked(await self._from_secret())
            self._read_at = self._clock()
        return self._dsn

    async def _from_secret(self) -> str:
        place = self._place
        try:
            found = await self._cluster.secret(
                place.namespace, place.name, place.key, seconds=SECRET_SECONDS
            )
        except ClusterError as error:
            if error.is_not_found:
                self._dsn = None
                raise self._missing(
                    f"there is no Secret {place.name} in the namespace {place.namespace}"
                ) from error
            if error.is_forbidden:
                self._dsn = None
                raise NoConnection(ConditionReason.FORBIDDEN, str(error)) from error
            if self._dsn is None:
                raise
            # The API server is away, which says nothing about the DSN.
            return self._dsn
        if not found:
            self._dsn = None
            raise self._missing(f"the Secret {place.name} has no text at the key {place.key}")
        return found.rstrip("\r\n")

    def _from_file(self) -> str:
        path = self._folder / self._place.name
        try:
            return read_secret(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is empty or no text"
            raise self._missing(f"the connection {path} cannot be read: {reason}") from error

    def _missing(self, message: str) -> NoConnection:
        return NoConnection(ConditionReason.SECRET_NOT_FOUND, message)

    def _checked(self, dsn: str) -> str:
        problems = dsn_problems(
            f"the DSN of {self._place}", dsn, os.environ, insecure=self._insecure
        )
        for problem in problems:
            insecure = "sslmode" in problem.rule
            reason = (
                ConditionReason.DATABASE_INSECURE if insecure else ConditionReason.SECRET_NOT_FOUND
            )
            self._dsn = None
            told = f"{problem.field} {problem.rule}. {INSECURE}" if insecure else str(problem)
            raise NoConnection(reason, told)
        return dsn
