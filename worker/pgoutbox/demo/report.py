"""What came of it: the figures, what is wrong with them, and how to say so."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Set as AbstractSet
    from uuid import UUID

    from pgoutbox.demo.workers import Told


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the shop, the consumer, the outbox and the workers know in the end."""

    committed: AbstractSet[UUID]
    rolled_back: AbstractSet[UUID]
    refused: AbstractSet[UUID]
    """What the consumer answers with 400: to be dead, and nothing else."""
    requested: AbstractSet[UUID]
    """Every message that reached the consumer, whatever it answered."""
    effects: Mapping[UUID, int]
    """Shipments per message."""
    dead: AbstractSet[UUID]
    duplicates_seen: int
    duplicates_absorbed: int
    told: Told
    killed: str
    stranded: int
    """Leases that the killed worker left."""
    stopped: str
    drain_seconds: float
    exit_codes: Mapping[str, int | None]
    """Of the workers that were told to stop; None for one that did not end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The figures. The names are those of the JSON object, and public."""

    committed: int
    rolled_back: int
    delivered_distinct: int
    duplicates_seen: int
    duplicates_absorbed: int
    dead: int
    lost: int
    reclaimed: int
    lease_lost: int
    handed_back: int
    drain_seconds: float

    def as_dict(self) -> dict[str, object]:
        """For JSON."""
        return asdict(self)


def report_of(found: Findings) -> Report:
    """Count."""
    committed, dead = len(found.committed), len(found.dead)
    delivered = len(found.committed & found.effects.keys())
    return Report(
        committed=committed,
        rolled_back=len(found.rolled_back),
        delivered_distinct=delivered,
        duplicates_seen=found.duplicates_seen,
        duplicates_absorbed=found.duplicates_absorbed,
        dead=dead,
        lost=committed - delivered - dead,
        reclaimed=found.told.reclaimed,
        lease_lost=found.told.lease_lost,
        handed_back=found.told.handed_back,
        drain_seconds=round(found.drain_seconds, 2),
    )


def broken_promises(found: Findings) -> list[str]:
    """A sentence for each; empty when everything went as it should."""
    lost = report_of(found).lost
    delivered = found.requested | found.effects.keys()
    never_committed = len(delivered & found.rolled_back)
    strangers = len(delivered - found.rolled_back - found.committed)
    twice = sum(count > 1 for count in found.effects.values())
    dead, refused = len(found.dead), len(found.refused)
    checks = {
        f"committed - delivered - dead is {lost}, not 0": lost == 0,
        f"messages delivered although rolled back: {never_committed}": never_committed == 0,
        f"messages delivered that the shop does not know: {strangers}": strangers == 0,
        f"messages that had their effect more than once: {twice}": twice == 0,
        f"dead: {dead}; refused by the consumer: {refused}; these must be the same messages": (
            found.dead == found.refused
        ),
    }
    for name, code in found.exit_codes.items():
        ended = "did not end" if code is None else f"exited with {code}"
        checks[f"{name} {ended} after SIGTERM"] = code == 0
    return [sentence for sentence, kept in checks.items() if not kept]


def summary(found: Findings) -> str:
    """The story in a few lines, for people."""
    report = report_of(found)
    code = found.exit_codes.get(found.stopped)
    return f"""\
The shop committed {report.committed} messages and rolled {report.rolled_back} back.
Delivered: {report.delivered_distinct}. Dead, refused by the consumer: {report.dead}. \
Lost: {report.lost}. Rolled back and delivered: {len(found.requested & found.rolled_back)}.
{found.killed} was killed while it held {found.stranded}; \
claims of expired leases by the others: {report.reclaimed}.
Requests for what had been accepted before: {report.duplicates_seen}; \
skipped by the inbox: {report.duplicates_absorbed}.
{found.stopped} was told to stop while it waited for a slow answer, and exited with {code} \
after {report.drain_seconds} s."""
