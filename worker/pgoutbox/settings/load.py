"""Read all sources, check everything, and either return settings or every problem at once."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pgoutbox.settings.model import Settings
from pgoutbox.settings.names import variable
from pgoutbox.settings.problems import SettingsError, from_pydantic
from pgoutbox.settings.rules import broken_rules, no_destination
from pgoutbox.settings.sources import (
    Tree,
    hidden_values,
    merge,
    read_environment,
    read_file,
    read_secret_files,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pgoutbox.problem import Problem
    from pgoutbox.settings.destination import Destination

# Stand in for required values that are missing or wrong, so that the rest can be checked.
PLACEHOLDER_DSN = "host=localhost"
PLACEHOLDER_URL = "noop://"
PLACEHOLDER_WEBHOOK = "http://localhost/"
WEBHOOKS_ONLY = ("signing_secrets", "signing_secrets_file", "allowed_hosts")
DSNS = frozenset(variable((key + file,)) for key in ("dsn", "listen_dsn") for file in ("", "_file"))


def load_settings(
    environ: Mapping[str, str],
    *,
    to: str | None = None,
    overrides: Mapping[str, object] | None = None,
    need_destination: bool = False,
    publishes: bool = True,
    need_database: bool = True,
) -> Settings:
    """The settings from the environment and the file that ``PGOUTBOX_CONFIG`` names.

    ``to`` is the URL of the destination ``default``. ``overrides`` is a tree of its own, as in
    ``{"http": {"port": 0}}``, and wins over everything. A worker says ``need_destination``. Where
    nothing ``publishes``, a destination may be without its URL, which a worker may get as ``to``;
    it is left out then, once the rest of it was checked. Who does not ``need_database`` is told
    nothing about the DSNs, missing or wrong, and must not use them.
    Raises `SettingsError` with everything that is wrong.
    """
    tree, where, problems = _gather(environ, _explicit(overrides, to))
    if not need_database:
        tree.setdefault("dsn", PLACEHOLDER_DSN)
    nowhere = set() if publishes else _without_url(tree)
    for name in nowhere:
        tree = merge(tree, {"destinations": {name: {"url": _placeholder(tree, name)}}})
    settings, more = _validate(tree, skip=_names(problems))
    problems += more
    if settings is not None:
        problems += _cross_problems(settings, environ, skip=_names(problems))
        if need_destination and not settings.destinations and not problems:
            problems.append(no_destination())
    if not need_database:
        problems = [problem for problem in problems if problem.field not in DSNS]
    if problems or settings is None:
        found = {} if settings is None else settings.destinations
        raise _refusal([_located(problem, where) for problem in problems], tree, found, nowhere)
    kept = {name: one for name, one in settings.destinations.items() if name not in nowhere}
    return settings.model_copy(update={"destinations": kept}) if nowhere else settings


def located(
    problems: Iterable[Problem], environ: Mapping[str, str], *, to: str | None = None
) -> list[Problem]:
    """Problems that were found later, with the file and the key where the value comes from it."""
    _, where, _ = _gather(environ, _explicit(None, to))
    return [_located(problem, where) for problem in problems]


def _explicit(overrides: Mapping[str, object] | None, to: str | None) -> Tree:
    explicit: Tree = dict(overrides or {})
    if to is None:
        return explicit
    return merge(explicit, {"destinations": {"default": {"url": to}}})


def _refusal(
    problems: list[Problem], tree: Tree, found: Mapping[str, Destination], nowhere: set[str]
) -> SettingsError:
    """With what concerns single destinations told apart, so that others may be used meanwhile."""
    destinations = tree.get("destinations")
    # The longest first: a name may begin with another one.
    names = sorted(destinations if isinstance(destinations, dict) else (), key=len, reverse=True)
    wrong: dict[str, list[Problem]] = {}
    for problem in problems:
        field = f"{problem.field}__"
        for name in names:
            if field.startswith(f"{variable(('destinations', name))}__"):
                wrong.setdefault(name, []).append(problem)
                break
    usable = {name: one for name, one in found.items() if name not in wrong and name not in nowhere}
    return SettingsError(problems, wrong=wrong, usable=usable)


def _without_url(tree: Tree) -> set[str]:
    destinations = tree.get("destinations")
    named = destinations.items() if isinstance(destinations, dict) else ()
    return {
        name
        for name, given in named
        if isinstance(given, dict) and not {"url", "url_file"} & given.keys()
    }


def _placeholder(tree: Tree, name: str) -> str:
    destinations = tree["destinations"]
    given = destinations[name] if isinstance(destinations, dict) else ()
    return PLACEHOLDER_WEBHOOK if any(key in given for key in WEBHOOKS_ONLY) else PLACEHOLDER_URL


def _gather(
    environ: Mapping[str, str], explicit: Tree
) -> tuple[Tree, dict[str, str], list[Problem]]:
    """One tree from all sources, where in the file its values are, and what could not be read."""
    from_environ, problems = read_environment(environ)
    from_file: Tree = {}
    config = from_environ.get("config")
    if isinstance(config, str):
        from_file, more = read_file(Path(config))
        problems += more
    upper = merge(from_environ, explicit)
    problems += hidden_values(from_file, upper, Path(str(config)))
    tree = merge(from_file, upper)
    problems += read_secret_files(tree)
    tree.setdefault("owner", environ.get("POD_NAME") or gethostname())
    where = {
        variable(path): f"{'.'.join(path)} in {config}"
        for path in _paths(from_file)
        if not _has(upper, path)
    }
    return tree, where, problems


def _located(problem: Problem, where: Mapping[str, str]) -> Problem:
    """With the file and the key, where the value comes from the file."""
    if problem.where or problem.field not in where:
        return problem
    return replace(problem, where=where[problem.field])


def _validate(tree: Tree, *, skip: set[str]) -> tuple[Settings | None, list[Problem]]:
    """The settings; where values are wrong, with defaults in their place and a problem for each."""
    try:
        return Settings.model_validate(tree), []
    except ValidationError as error:
        errors = error.errors(include_url=False)
    # A value whose file could not be read is missing for a reason that is already told.
    config_unread = variable(("config",)) in skip
    told = [one for one in errors if not (config_unread and one["type"] == "missing")]
    problems = [problem for problem in map(from_pydantic, told) if problem.field not in skip]
    repaired = copy.deepcopy(tree)
    for one in errors:
        _repair(repaired, tuple(str(part) for part in one["loc"]))
    try:
        return Settings.model_validate(repaired), problems
    except ValidationError:
        return None, problems


def _cross_problems(
    settings: Settings, environ: Mapping[str, str], *, skip: set[str]
) -> Iterator[Problem]:
    """The broken rules, without those that touch a value which is wrong anyway."""
    for problem in broken_rules(settings, environ):
        if skip.isdisjoint({problem.field, *problem.others}):
            yield problem


def _repair(tree: Tree, path: tuple[str, ...]) -> None:
    """Remove a value, or put a placeholder where one is required."""
    *sections, key = path
    here = tree
    for section in sections:
        below = here.get(section)
        if not isinstance(below, dict):
            return
        here = below
    here.pop(key, None)
    if key == "dsn":
        here[key] = PLACEHOLDER_DSN
    elif key == "url" and path[0] == "destinations":
        here[key] = PLACEHOLDER_URL


def _paths(tree: Tree, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in tree.items():
        yield (*above, key)
        if isinstance(value, dict):
            yield from _paths(value, (*above, key))


def _has(tree: Tree, path: tuple[str, ...]) -> bool:
    here: object = tree
    for key in path:
        if not isinstance(here, dict) or key not in here:
            return False
        here = here[key]
    return not isinstance(here, dict)


def _names(problems: list[Problem]) -> set[str]:
    return {name for problem in problems for name in (problem.field, *problem.others)}
