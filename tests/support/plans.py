"""What the server really did for one of the worker's statements, prepared as the worker has it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import psycopg

PLACEHOLDER = re.compile(rb"%\((\w+)\)s")
# As the driver declares them; the types of all others are left to the server.
INTERVALS = dict.fromkeys([b"recent", b"lease", b"keep", b"since"], b"interval")
REMOVED = ("Rows Removed by Filter", "Rows Removed by Index Recheck", "Rows Removed by Join Filter")


@dataclass(frozen=True, slots=True)
class Plan:
    """The root node of EXPLAIN (ANALYZE, BUFFERS)."""

    root: dict[str, Any]

    @property
    def nodes(self) -> Iterator[dict[str, Any]]:
        """Every node, CTEs and subplans included."""
        waiting = [self.root]
        while waiting:
            node = waiting.pop()
            waiting += node.get("Plans", [])
            yield node

    @property
    def blocks(self) -> int:
        """Buffers that were looked at, wherever they were."""
        hit: int = self.root["Shared Hit Blocks"]
        read: int = self.root["Shared Read Blocks"]
        return hit + read

    @property
    def rows(self) -> float:
        """Rows that any node produced or threw away: what grows when a join turns quadratic."""
        counts = (
            float(node.get(key, 0)) * node["Actual Loops"]
            for node in self.nodes
            for key in ("Actual Rows", *REMOVED)
        )
        total: float = sum(counts)
        return total

    @property
    def scans(self) -> set[str]:
        """How the outbox was read, as in ``{"Index Scan using outbox_ready"}``."""
        return {
            f"{node['Node Type']} using {node['Index Name']}"
            if "Index Name" in node
            else node["Node Type"]
            for node in self.nodes
            if node.get("Relation Name") == "outbox" or "Index Name" in node
            if node["Node Type"] not in ("ModifyTable", "Bitmap Heap Scan")
            if not node.get("Index Name", "").startswith("pg_")
        }

    @property
    def sorted_rows(self) -> float:
        """The most rows that one node sorted."""
        sorts = (node["Plans"][0] for node in self.nodes if "Sort" in node["Node Type"])
        rows = (float(node["Actual Rows"]) * node["Actual Loops"] for node in sorts)
        return max(rows, default=0.0)

    @property
    def repeated_searches(self) -> list[str]:
        """Conditions over a whole array that were evaluated more than once."""
        return [
            node["Index Cond"]
            for node in self.nodes
            if "ANY" in node.get("Index Cond", "") + node.get("Filter", "")
            if node["Actual Loops"] > 1
        ]


class Prepared:
    """A statement that is prepared once and explained at each execution."""

    def __init__(self, conn: psycopg.Connection[Any], name: str, statement: bytes) -> None:
        self._conn = conn
        self._name = name
        self._parameters = list(dict.fromkeys(PLACEHOLDER.findall(statement)))
        numbered = PLACEHOLDER.sub(
            lambda found: b"$%d" % (self._parameters.index(found[1]) + 1), statement
        )
        types = b", ".join(INTERVALS.get(each, b"unknown") for each in self._parameters)
        conn.execute(
            b'PREPARE "%s" (%s) AS %s' % (name.encode(), types, numbered.replace(b"%%", b"%"))
        )

    def explain(self, parameters: Mapping[str, Any]) -> Plan:
        """Execute it, undo what it did, and say how it was done."""
        values = sql.SQL(", ").join(
            sql.Literal(parameters[name.decode()]) for name in self._parameters
        )
        with self._conn.transaction(force_rollback=True):
            row = self._conn.execute(
                sql.SQL(
                    "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) EXECUTE {} ({})"
                ).format(sql.Identifier(self._name), values)
            ).fetchone()
        assert row is not None
        return Plan(row[0][0]["Plan"])
