"""From what pydantic found to problems that a person can act on, and the error that holds all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgoutbox.errors import PgOutboxError
from pgoutbox.problem import Problem
from pgoutbox.settings.names import (
    DESTINATION_SECRETS,
    NAMED_PATHS,
    SECRETS,
    WORKER_PATHS,
    variable,
)
from pgoutbox.settings.sources import nearest_table, suggestion

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pydantic_core import ErrorDetails

    from pgoutbox.settings.destination import Destination

# In words for people, where pydantic speaks of Python's types. Rule and advice.
WORDS = {
    "bool_parsing": ("is neither true nor false", ""),
    "bool_type": ("is neither true nor false", ""),
    "int_parsing": ("must be a whole number", ""),
    "int_type": ("must be a whole number", ""),
    "int_from_float": ("must be a whole number", ""),
    "float_parsing": ("must be a number", ""),
    "float_type": ("must be a number", ""),
    "string_pattern_mismatch": (
        "must consist of letters, digits and underscores",
        "Begin it with a letter.",
    ),
}
GROUP_EXPECTED = {"model_type", "model_attributes_type", "dict_type", "mapping_type"}
SECRET_KEYS = {*SECRETS, *DESTINATION_SECRETS}


class SettingsError(PgOutboxError):
    """The settings cannot be used. Holds everything that is wrong with them, at once."""

    def __init__(
        self,
        problems: Sequence[Problem],
        *,
        wrong: Mapping[str, list[Problem]] | None = None,
        usable: Mapping[str, Destination] | None = None,
    ) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)
        self.wrong = dict(wrong or {})
        """Those that concern a single destination, by its name."""
        self.usable = dict(usable or {})
        """The destinations that nothing in the settings speaks against."""

    @property
    def concerns_all(self) -> bool:
        """Whether there are others, so that no destination can be used."""
        return len(self.problems) > sum(map(len, self.wrong.values()))


def from_pydantic(error: ErrorDetails) -> Problem:
    """One validation error as a problem."""
    path = tuple(str(part) for part in error["loc"])
    rule, advice = _rule_and_advice(error, path)
    return Problem(
        field=variable(path),
        rule=rule,
        advice=advice,
        value=_shown(error, path),
    )


def unusable(name: str, destination: Destination, problem: str) -> Problem:
    """What a publisher's factory said about the URL, which it does not quote."""
    setting = "url" if destination.url_file is None else "url_file"
    return Problem(
        field=variable(("destinations", name, setting)),
        rule=f"cannot be used: {problem}",
        advice="",
    )


def _rule_and_advice(error: ErrorDetails, path: tuple[str, ...]) -> tuple[str, str]:
    kind = error["type"]
    if kind == "missing":
        return _missing(path)
    if kind in WORDS:
        return WORDS[kind]
    if kind == "extra_forbidden":
        return "is no setting", _nearest(path, error["input"])
    if kind in GROUP_EXPECTED:
        return (
            "is a group of settings, not a value",
            "Set the names inside it; see docs/settings.md.",
        )
    if kind == "literal_error":
        return "is not one of the choices", f"Choose {_choices(error)}."
    text = error["msg"]
    for said in ("Input should be", "String should", "Value should"):
        text = text.replace(said, "must be" if said.endswith("be") else "must")
    return text, ""


def _missing(path: tuple[str, ...]) -> tuple[str, str]:
    if path[-1] == "dsn":
        advice = f"Set it, or {variable(path)}_FILE, as in postgresql://user:password@host/db."
        return "is required", advice
    instead = "say where with --to URL, " if path[:2] == ("destinations", "default") else ""
    return (
        "is required",
        f"Set it, as in https://example.com/hook, {instead}or remove the destination.",
    )


def _nearest(path: tuple[str, ...], value: object) -> str:
    if isinstance(value, dict) and (meant := nearest_table(path, value)):
        return f"Did you mean [{meant}]?"
    known = list(WORKER_PATHS)
    known += [f"{variable(path[:2])}__{tail}" for tail in NAMED_PATHS.get(path[0], ())]
    return suggestion(variable(path), known)


def _choices(error: ErrorDetails) -> str:
    return str(error.get("ctx", {}).get("expected", "another one")).replace("'", "")


def _shown(error: ErrorDetails, path: tuple[str, ...]) -> str | None:
    """The value, unless it may be a secret: an unknown key may be a mistyped secret one."""
    value = error["input"]
    misplaced = error["type"] in {"extra_forbidden", *GROUP_EXPECTED}
    if misplaced or path[-1] in SECRET_KEYS or not isinstance(value, str | int | float):
        return None
    return f"{value!s:.80}"
