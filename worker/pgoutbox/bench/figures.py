"""What one scenario found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pgoutbox.bench.claiming import per_100_ms

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgoutbox.bench.claiming import Drained, Timed
    from pgoutbox.bench.workers import Worked

LOOP = "claims of 100 and their finalizes in turn on one connection, no worker"
WORKER = "one worker process with noop://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """``by`` says what was measured; ``of`` is how many messages there were to finish."""

    claim_ms_per_100: float | None
    msgs_per_s: float | None
    by: str
    finished: int
    of: int
    more: Mapping[str, float | None] = field(default_factory=dict)
    """Further figures of this scenario, by name."""

    @property
    def complete(self) -> bool:
        """Whether everything was finished within the time that there is for it."""
        return self.finished >= self.of

    def figures(self) -> dict[str, float | None]:
        """All figures by name."""
        return {
            "claim_ms_per_100": self.claim_ms_per_100,
            "msgs_per_s": self.msgs_per_s,
            **self.more,
        }


def of_loop(drained: Drained, count: int, *, tenths: bool = False) -> Found:
    """Of the loop; its ``claim_ms_per_100`` is the median claim. For ``tenths`` see `_tenths`."""
    return Found(
        claim_ms_per_100=drained.claim_ms_per_100 if drained.claims else None,
        msgs_per_s=drained.msgs_per_s,
        by=LOOP,
        finished=drained.finished,
        of=count,
        more=_tenths(drained.claims) if tenths else {},
    )


def of_worker(worked: Worked, count: int, *, by: str = WORKER, tenths: bool = False) -> Found:
    """Of a worker; its ``claim_ms_per_100`` is an average, since its claims differ in size."""
    return Found(
        claim_ms_per_100=worked.claim_ms_per_100,
        msgs_per_s=worked.msgs_per_s,
        by=by,
        finished=worked.finished,
        of=count,
        more=_tenths(worked.claims) | _tenths_of_drain(worked.progress) if tenths else {},
    )


def _tenths(claims: Sequence[Timed]) -> dict[str, float | None]:
    """What the first tenth of the claims cost on the average, and the last, and their ratio."""
    if not claims:
        return {"first_tenth_ms": None, "last_tenth_ms": None, "last_to_first": None}
    tenth = max(len(claims) // 10, 1)
    first, last = per_100_ms(claims[:tenth]), per_100_ms(claims[-tenth:])
    return {"first_tenth_ms": first, "last_tenth_ms": last, "last_to_first": last / first}


def _tenths_of_drain(progress: Sequence[Timed]) -> dict[str, float | None]:
    """How much longer the last tenth of the messages took than the first.

    With everything that a worker does beside its claims: reclaims, sweeps, finalizes.
    """
    total = progress[-1][0] if progress else 0
    first = next((at for finished, at in progress if 10 * finished >= total), 0.0)
    before_last = next((at for finished, at in progress if 10 * finished >= 9 * total), 0.0)
    last = progress[-1][1] - before_last if progress else 0.0
    return {"drain_last_to_first": last / first if first else None}
