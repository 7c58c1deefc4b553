"""One writer at a time, by a Lease and nobody's wall clock."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import kmock
import pytest

from pgoutbox_operator.cluster import Cluster, ClusterError
from pgoutbox_operator.gate import DEADLINE, DURATION, RETRY, LeaseGate
from tests.support.kube import LEASES, NAMESPACE, FakeKube

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

LEASE = f"{LEASES}/operator"


class Two:
    """Two replicas of the operator, with one clock that a test moves."""

    def __init__(self, kube: FakeKube, cluster: Cluster) -> None:
        self.kube = kube
        self.time = 0.0
        self.one, self.other = (
            LeaseGate(cluster, NAMESPACE, "operator", identity=name, now=lambda: self.time)
            for name in ("one", "other")
        )

    @property
    def holder(self) -> str:
        name: str = self.kube.leases["operator"]["spec"]["holderIdentity"]
        return name


@asynccontextmanager
async def two() -> AsyncIterator[Two]:
    kube = FakeKube()
    async with kube.mock, kmock.Server(kube.mock):
        link = kube.link()
        try:
            yield Two(kube, Cluster(link))
        finally:
            await link.close()


async def test_the_first_takes_it_and_the_second_waits() -> None:
    async with two() as t:
        await t.one.step()
        await t.other.step()
        assert (t.one.held, t.other.held, t.holder) == (True, False, "one")


async def test_one_who_renews_keeps_it() -> None:
    async with two() as t:
        for _ in range(20):
            t.time += 2
            await t.one.step()
            await t.other.step()
        assert (t.one.held, t.other.held) == (True, False)
        assert t.kube.leases["operator"]["spec"]["leaseTransitions"] == 1


async def test_there_are_never_two_who_hold_it() -> None:
    async with two() as t:
        await t.one.step()
        for _ in range(20):
            t.time += 1
            await t.other.step()
            assert not (t.one.held and t.other.held)
        assert t.other.held
        assert t.time > DURATION > DEADLINE


async def test_one_who_waits_tries_right_when_it_is_over() -> None:
    async with two() as t:
        await t.one.step()
        t.time += RETRY - 0.1
        await t.other.step()
        assert t.other.pause == RETRY
        t.time += DURATION - 0.5
        await t.other.step()
        assert t.other.pause == pytest.approx(0.5)
        t.time += t.other.pause
        await t.other.step()
        assert (t.holder, t.other.pause) == ("other", RETRY)


async def test_one_who_is_released_from_it_hands_over_at_once() -> None:
    async with two() as t:
        await t.one.step()
        await t.one.release()
        await t.other.step()
        assert (t.one.held, t.other.held, t.holder) == (False, True, "other")


async def test_what_somebody_else_holds_is_not_released() -> None:
    async with two() as t:
        await t.one.step()
        t.kube.leases["operator"]["spec"]["holderIdentity"] = "other"
        await t.one.release()
        assert t.holder == "other"


async def test_a_clock_of_the_other_that_is_wrong_changes_nothing() -> None:
    async with two() as t:
        await t.one.step()
        t.kube.leases["operator"]["spec"]["renewTime"] = "1999-01-01T00:00:00.000000Z"
        t.kube.leases["operator"]["metadata"]["resourceVersion"] = "77"
        await t.other.step()
        assert not t.other.held
        t.time += DURATION - 1
        await t.other.step()
        assert not t.other.held


async def test_an_api_server_that_is_away_ends_it_before_others_may_begin() -> None:
    async with two() as t:
        await t.one.step()
        t.kube.mock[f"get {LEASE}"] << 503
        t.time += 2
        with pytest.raises(ClusterError):
            await t.one.step()
        assert t.one.held
        t.time += DEADLINE - 2
        assert not t.one.held


async def test_a_race_for_it_has_one_winner() -> None:
    async with two() as t:
        t.kube.mock[f"get {LEASE}"][:2] << 404
        await t.one.step()
        await t.other.step()
        assert (t.one.held, t.other.held) == (True, False)
