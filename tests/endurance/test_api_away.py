"""Five minutes without an API server, of the loop's own time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.kube import refuse
from tests.support.together import READY, Together, busy, virtually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

AWAY = 300.0
GOING_ON = 20.0
"""A tick, and the seconds that a request may hang."""
NOTICING = {"shut": 40.0, "silent": 40.0, "lost": 60.0, "unavailable": 40.0}
"""Backoff, request, and what is left of the minute after which a silent watch is given up."""


async def take_away(t: Together, how: str) -> None:
    if how == "shut":
        await t.door.shut()
    elif how == "unavailable":
        t.kube.mock.obstacle = lambda _: refuse(503)
        t.kube.tell(None)
    else:
        t.door.silence()


async def give_back(t: Together, how: str) -> None:
    if how == "lost":
        t.door.lose()
    t.kube.mock.obstacle = lambda _: None
    await t.door.open()


async def five_minutes_without(
    t: Together, how: str, meanwhile: Callable[[], None] = lambda: None
) -> None:
    """It lives, says so, and leaves everything as it is."""
    replicas = t.kube.replicas
    await take_away(t, how)
    meanwhile()
    for _ in range(int(AWAY / 30)):
        await t.pass_by(30)
        assert await t.probe("/livez") == 200
        assert await t.probe("/readyz") == 200
        assert await t.probe("/metrics") == 200
    assert t.kube.replicas == replicas
    # The databases can be asked all the time.
    assert [each.misses for each in t.operator.supervisor.databases] == [0]


@pytest.mark.parametrize("how", NOTICING)
def test_it_goes_on_when_the_api_server_is_back(tmp_path: Path, how: str) -> None:
    async def scenario(t: Together) -> None:
        t.kube.put(busy())
        await t.until(lambda: t.kube.conditions.get("Ready") == READY, within=20)
        await five_minutes_without(t, how)
        t.outbox.has_backlog()
        await give_back(t, how)
        await t.until(lambda: t.kube.replicas > 2, within=GOING_ON)

    virtually(tmp_path / "token", scenario)


@pytest.mark.parametrize("forgotten", [False, True])
@pytest.mark.parametrize("how", NOTICING)
def test_what_came_and_went_meanwhile_is_noticed(
    tmp_path: Path, how: str, *, forgotten: bool
) -> None:
    async def scenario(t: Together) -> None:
        t.kube.put(busy())
        await t.until(lambda: t.kube.conditions.get("Ready") == READY, within=20)

        def meanwhile() -> None:
            t.kube.delete("orders")
            t.kube.put(busy("later", uid="2", mode="Recommend"))
            if forgotten:
                t.kube.compacted = len(t.kube.history)

        await five_minutes_without(t, how, meanwhile)
        t.outbox.has_backlog()
        await give_back(t, how)
        await t.until(lambda: t.names == ["later"], within=NOTICING[how])
        assert t.kube.replicas == 2
        await t.pass_by(60)
        assert "desiredReplicas" in t.kube.statuses["later"]
        assert t.kube.replicas == 2

    virtually(tmp_path / "token", scenario)
