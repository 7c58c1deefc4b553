"""One thing that is wrong, told to a person: with the settings, or with the database."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """What is wrong, where, and what to do. Never holds a secret."""

    field: str
    """The name as the user writes it (``PGOUTBOX_LEASE__RENEW``), or the part of the database."""
    rule: str
    """A clause that follows the field: ``must be at most ...``."""
    advice: str
    """A whole sentence, or nothing where the rule says it all."""
    value: str | None = None
    """What was found there; None where it is missing or secret."""
    where: str = ""
    """The file and key, where the value does not come from the environment."""
    others: tuple[str, ...] = ()
    """Further names that the rule is about."""

    def __str__(self) -> str:
        name = f"{self.field} ({self.where})" if self.where else self.field
        found = "" if self.value is None else f" (it is {_quoted(self.value)})"
        return f"{name} {self.rule}{found}. {self.advice}".rstrip()

    def as_dict(self) -> dict[str, str | None]:
        """For machines: field, rule, value and advice."""
        return {
            "field": self.field,
            "rule": self.rule,
            "value": self.value,
            "advice": self.advice,
        }


def _quoted(value: str) -> str:
    return value if value.isprintable() and value and " " not in value else repr(value)
