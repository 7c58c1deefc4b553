"""Where settings come from: the environment, a TOML file, files that hold secrets.

Each source becomes a tree of plain values and a list of problems; nothing is refused here before
everything has been read.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from pgoutbox.problem import Problem
from pgoutbox.settings.names import (
    DESTINATION_PATHS,
    DESTINATION_SECRETS,
    NAMED_PATHS,
    NAMED_SECRETS,
    PREFIX,
    SECRETS,
    WORKER_PATHS,
    variable,
)
from pgoutbox.settings.section import read_secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

Tree = dict[str, object]

DESTINATIONS = f"{PREFIX}DESTINATIONS__"
# Ours, but not the worker's: for tests and for their cluster.
OTHER_USES = ("PGOUTBOX_TEST_", "PGOUTBOX_KUBE_")
# Kubernetes describes every service of the namespace to every pod. One that is called pgoutbox, or
# pgoutbox-anything, lands under our prefix.
SERVICE_LINK = re.compile(
    r"PGOUTBOX(_\w+)?_(SERVICE_(HOST|PORT(_\w+)?)|PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)"
)
SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")


def read_environment(environ: Mapping[str, str]) -> tuple[Tree, list[Problem]]:
    """The tree that the environment describes. An empty variable counts as not set."""
    tree: Tree = {}
    problems = []
    for name, value in sorted(environ.items()):
        upper = name.upper()
        if not upper.startswith(PREFIX) or not value or _somebody_elses(upper, value):
            continue
        path = WORKER_PATHS.get(upper) or _named_path(upper)
        if path is None:
            problems.append(_unknown_variable(name))
        else:
            _put(tree, path, value)
    return tree, problems + _given_twice(tree, where="")


def read_file(path: Path) -> tuple[Tree, list[Problem]]:
    """The tree of a TOML file. Unknown keys are found when the tree is validated."""
    try:
        tree: Tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return {}, [
            Problem(
                field=f"{PREFIX}CONFIG",
                rule=f"names a file that cannot be read as TOML: {reason}",
                value=str(path),
                advice="Correct the file or the path, or unset the variable.",
            )
        ]
    problems = _given_twice(tree, where=str(path))
    if "config" in tree:
        del tree["config"]
        problems.append(
            Problem(
                field=f"{PREFIX}CONFIG",
                rule="is not allowed inside the file that it names",
                where=f"config in {path}",
                advice="Remove it.",
            )
        )
    return tree, problems


def read_secret_files(tree: Tree) -> list[Problem]:
    """Fill in the secrets whose files are named in the tree."""
    problems = []
    for above, section, secret in _secrets(tree):
        named = section.get(f"{secret}_file")
        if not isinstance(named, str) or secret in section:
            continue
        try:
            section[secret] = read_secret(Path(named))
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else _why_no_secret(error)
            problems.append(
                Problem(
                    field=variable((*above, f"{secret}_file")),
                    rule=f"names a file that cannot be read: {reason}",
                    value=named,
                    advice="Check the path, the mount and the rights of this user.",
                    others=(variable((*above, secret)),),
                )
            )
    return problems


def merge(lower: Tree, upper: Tree) -> Tree:
    """Both trees; where they disagree, ``upper``. A secret and its file are one value."""
    merged = dict(lower)
    for secret in (*SECRETS, *DESTINATION_SECRETS):
        pair = (secret, f"{secret}_file")
        if any(key in upper for key in pair):
            for key in pair:
                merged.pop(key, None)
    for key, value in upper.items():
        below = merged.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            merged[key] = merge(below, value)
        else:
            merged[key] = value
    return merged


def hidden_values(lower: Tree, upper: Tree, where: Path) -> list[Problem]:
    """What `merge` would hide: a value in the file where there is a group in the environment."""
    return [
        Problem(
            field=variable((key,)),
            rule="is a group of settings, not a value",
            where=f"{key} in {where}",
            advice="Set the names inside it; see docs/settings.md.",
        )
        for key, value in lower.items()
        if isinstance(upper.get(key), dict) and not isinstance(value, dict)
    ]


def suggestion(name: str, known: list[str]) -> str:
    """A sentence with the nearest known name, or with where to find all of them."""
    # What each destination has for itself resembles nothing where its middle is left out.
    tail = name.removeprefix(PREFIX)
    if tail in DESTINATION_PATHS and not any(one.endswith(f"__{tail}") for one in WORKER_PATHS):
        return f"Did you mean {DESTINATIONS}DEFAULT__{tail}?"
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.75)
    return (
        f"Did you mean {nearest[0]}?" if nearest else "Remove it; docs/settings.md lists them all."
    )


def nearest_table(path: tuple[str, ...], table: Tree) -> str:
    """What a table of the file was meant for, as ``databases.shop`` for ``database.shop``, or ''.

    None of our sections but the named ones holds tables.
    """
    section, *named = path
    if section in NAMED_PATHS:
        return ""
    named += [key for key, value in table.items() if isinstance(value, dict)]
    plain = set() if named else {at[0] for at in WORKER_PATHS.values() if len(at) > 1}
    nearest = difflib.get_close_matches(section, [*NAMED_PATHS, *plain], n=1, cutoff=0.75)
    if not nearest or nearest[0] in plain:
        return "".join(nearest)
    return f"{nearest[0]}.{[*named, 'default'][0]}"


def _somebody_elses(name: str, value: str) -> bool:
    if name.startswith(OTHER_USES) or SERVICE_LINK.fullmatch(name):
        return True
    return name.endswith("_PORT") and SERVICE_ADDRESS.match(value) is not None


def _named_path(name: str) -> tuple[str, ...] | None:
    """Read from its end, since the name of a destination may hold the delimiter itself."""
    for section, paths in NAMED_PATHS.items():
        before = f"{variable((section,))}__"
        rest = name.removeprefix(before)
        for tail, path in paths.items() if name.startswith(before) else ():
            named = rest.removesuffix(f"__{tail}")
            if named not in {rest, ""}:
                return (section, named.lower(), *path)
    return None


def _unknown_variable(name: str) -> Problem:
    known = list(WORKER_PATHS)
    for section, paths in NAMED_PATHS.items():
        before = f"{variable((section,))}__"
        meant = "DEFAULT"
        for start in (before, f"{before.removesuffix('S__')}__"):
            if name.upper().startswith(start):
                meant = name.upper().removeprefix(start).partition("__")[0]
        known += [f"{before}{meant}__{tail}" for tail in paths]
    # Without its value: a mistyped name may hold a secret.
    return Problem(field=name, rule="is no setting", advice=suggestion(name.upper(), known))


def _given_twice(tree: Tree, *, where: str) -> list[Problem]:
    return [
        Problem(
            field=variable((*above, secret)),
            rule=f"and {variable((*above, f'{secret}_file'))} are both given",
            where=where,
            advice="Keep one of them.",
        )
        for above, section, secret in _secrets(tree)
        if secret in section and f"{secret}_file" in section
    ]


def _secrets(tree: Tree) -> Iterator[tuple[tuple[str, ...], Tree, str]]:
    """Every place that a secret may stand at: the path to its section, that, and its name."""
    for secret in SECRETS:
        yield (), tree, secret
    for above, secrets in NAMED_SECRETS.items():
        sections = tree.get(above)
        for name, section in sections.items() if isinstance(sections, dict) else ():
            for secret in secrets if isinstance(section, dict) else ():
                yield (above, name), section, secret


def _put(tree: Tree, path: tuple[str, ...], value: str) -> None:
    here = tree
    for section in path[:-1]:
        below = here.get(section)
        if not isinstance(below, dict):
            below = here[section] = {}
        here = below
    here[path[-1]] = value


def _why_no_secret(error: ValueError) -> str:
    # The text of a decoding error quotes bytes of the secret.
    return "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else str(error)
