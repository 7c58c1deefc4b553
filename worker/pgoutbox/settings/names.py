"""What every setting is called: a path in the tree, and a variable of the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pydantic import BaseModel

from pgoutbox.settings.destination import Destination
from pgoutbox.settings.model import Settings
from pgoutbox.settings.watched import WatchedDatabase

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

PREFIX = "PGOUTBOX_"
DELIMITER = "__"
Path = tuple[str, ...]


class Leaf(NamedTuple):
    """One value in the tree."""

    path: Path
    field: FieldInfo


def leaves(model: type[BaseModel]) -> Iterator[Leaf]:
    """Every value of a model and of the sections below it, in the order of the source."""
    for name, field in model.model_fields.items():
        key = field.alias or name
        section = field.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield from (Leaf((key, *leaf.path), leaf.field) for leaf in leaves(section))
        else:
            yield Leaf((key,), field)


def variable(path: Path) -> str:
    """``("lease", "renew")`` -> ``PGOUTBOX_LEASE__RENEW``."""
    return PREFIX + DELIMITER.join(path).upper()


NAMED = {"destinations": tuple(leaves(Destination)), "databases": tuple(leaves(WatchedDatabase))}
"""Sections that hold one section for each name, and what may stand in it."""
WORKER_LEAVES = tuple(leaf for leaf in leaves(Settings) if leaf.path[0] not in NAMED)
DESTINATION_LEAVES = NAMED["destinations"]
WORKER_PATHS = {variable(leaf.path): leaf.path for leaf in WORKER_LEAVES}
NAMED_PATHS = {
    section: {DELIMITER.join(leaf.path).upper(): leaf.path for leaf in below}
    for section, below in NAMED.items()
}
DESTINATION_PATHS = NAMED_PATHS["destinations"]
SECRETS = ("dsn", "listen_dsn")
DESTINATION_SECRETS = ("url", "signing_secrets")
NAMED_SECRETS = {"destinations": DESTINATION_SECRETS, "databases": ("dsn",)}
"""Each may be given by a file instead, whose setting has ``_file`` behind its name."""
