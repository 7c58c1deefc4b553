"""What the cluster forbids: told in conditions, in the log, and counted."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

VERBS = {"PATCH": "patch", "POST": "create", "PUT": "update", "DELETE": "delete"}
FORGOTTEN_SECONDS = 900.0
"""Longer than any tick: what is asked for by name is asked for at each."""


class Access(NamedTuple):
    """What a request asked for, in the words of a Role."""

    verb: str
    resource: str
    """With its subresource: ``deployments/scale``."""
    namespace: str | None
    name: str = ""
    """Of the object: a Role may name those that it is about."""

    def __str__(self) -> str:
        return f"{self.verb} {self.resource}"


def access_of(method: str, path: str, query: Mapping[str, str]) -> Access:
    """What a request to the API server asks for."""
    parts = path.strip("/").split("/")
    # /api/v1/... of the core group, /apis/<group>/<version>/... of the others.
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    namespace = None
    if rest[:1] == ["namespaces"] and len(rest) > 2:  # noqa: PLR2004 - namespaces, name, and more
        namespace, rest = rest[1], rest[2:]
    resource = "/".join([*rest[:1], *rest[2:3]]) or path
    name = rest[1] if len(rest) > 1 else ""
    return Access(_verb(method, query, named=bool(name)), resource, namespace, name)


def _verb(method: str, query: Mapping[str, str], *, named: bool) -> str:
    if method != "GET":
        return VERBS.get(method, method.lower())
    if query.get("watch") in {"1", "true"}:
        return "watch"
    return "get" if named else "list"


class Permissions:
    """Remembers what was forbidden until it is allowed."""

    def __init__(self, *, now: Callable[[], float] = time.monotonic) -> None:
        self.errors: Counter[tuple[str, str]] = Counter()
        """Requests that were refused, by verb and resource."""
        self._denied: dict[Access, float] = {}
        """When it was asked for, and refused."""
        self._now = now
        self._log = structlog.get_logger()

    def told(self, access: Access, *, allowed: bool) -> None:
        """What the API server said about a request."""
        if allowed:
            self._denied.pop(access, None)
            return
        self.errors[access.verb, access.resource] += 1
        known = access in self._denied
        self._denied[access] = self._now()
        if not known:
            self._log.error(
                "forbidden by the cluster",
                verb=access.verb,
                resource=access.resource,
                namespace=access.namespace,
                advice="give this right to the operator's service account",
            )

    def missing(self, namespace: str) -> list[Access]:
        """What an object in ``namespace`` lacks."""
        gone = self._now() - FORGOTTEN_SECONDS
        # Of an object that is not spoken of any more, nobody will ever be told that it is allowed.
        self._denied = {key: at for key, at in self._denied.items() if at > gone or not key.name}
        found = (each for each in self._denied if each.namespace in {None, namespace})
        return sorted(found, key=lambda each: (each.resource, each.verb, each.name))
