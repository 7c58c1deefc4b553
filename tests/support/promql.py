"""What a PromQL expression asks for: names, matchers and labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import promql_parser as promql

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Selector:
    """One selector of an expression."""

    name: str
    equal: tuple[tuple[str, str], ...]
    """Its matchers that name one value."""
    labels: frozenset[str]
    """All labels that it matches."""


def selectors(expression: str) -> list[Selector]:
    """Every selector."""
    return [_selector(node) for node in _nodes(expression) if _selects(node)]


def called_with(expression: str) -> list[tuple[str, str]]:
    """Each function that takes a range of one selector, with the name of that."""
    return [
        (call.func.name, argument.vector_selector.name or "")
        for call in _nodes(expression)
        if isinstance(call, promql.Call)
        for argument in call.args
        if isinstance(argument, promql.MatrixSelector)
    ]


def grouped(expression: str) -> set[str]:
    """All labels that something is grouped by or matched on."""
    found: set[str] = set()
    for node in _nodes(expression):
        if isinstance(node, promql.AggregateExpr) and node.modifier is not None:
            found |= set(node.modifier.labels)
        if isinstance(node, promql.BinaryExpr) and node.modifier is not None:
            matching = node.modifier.matching
            found |= set(matching.labels if matching is not None else ())
    return found


def _nodes(expression: str) -> Iterator[promql.Expr]:
    found: list[promql.Expr] = []
    promql.walk(promql.parse(expression), found.append)
    return iter(found)


def _selects(node: promql.Expr) -> bool:
    return isinstance(node, promql.VectorSelector)


def _selector(node: promql.Expr) -> Selector:
    assert isinstance(node, promql.VectorSelector)
    matchers = node.matchers.matchers
    return Selector(
        node.name or "",
        tuple((each.name, each.value) for each in matchers if each.op == promql.MatchOp.Equal),
        frozenset(each.name for each in matchers),
    )
