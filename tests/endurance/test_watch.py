"""Lists and watches that are refused, broken off, or answered with nonsense, for a while."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from aiohttp import web

from tests.support.kube import IN_SHOP, refuse
from tests.support.together import READY, Together, busy, virtually

if TYPE_CHECKING:
    from collections.abc import Callable

REFUSALS = (400, 401, 403, 404, 409, 410, 422, 429, 500, 503)
ERRORS = (401, 403, 429, 500, 504)
DEFINITION = "/apis/pgoutbox.io/v1alpha1"
WHILE = 60.0
SOON = 40.0


def hinder(t: Together, method: str, answer: Callable[[], web.Response]) -> None:
    """Answer each list or watch of scalers so; ``method`` is LIST or WATCH."""

    def obstacle(request: web.BaseRequest) -> web.Response | None:
        watching = "watch" in request.query
        hit = request.path == IN_SHOP and watching == (method == "WATCH")
        return answer() if hit else None

    t.kube.mock.obstacle = obstacle


def allow(t: Together) -> None:
    t.kube.mock.obstacle = lambda _: None


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def calm() -> dict[str, int]:
    """What a process could run out of."""
    tasks = [each for each in asyncio.all_tasks() if each.get_name() != "door"]
    return {"tasks": len(tasks), "descriptors": descriptors()}


async def nothing_is_left(t: Together, before: dict[str, int]) -> None:
    def held() -> bool:
        now = calm()
        return all(now[each] <= before[each] for each in before)

    await t.until(held, within=120)


async def settled(t: Together) -> None:
    t.kube.put(busy())
    await t.until(lambda: t.kube.conditions.get("Ready") == READY and t.kube.watches, within=20)
    # What kopf keeps for an object that it has just seen, and connections that nobody needs.
    await t.pass_by(65)


async def takes_up(t: Together, name: str = "later") -> float:
    """Seconds until an object that has just been made is looked after."""
    t.kube.put(busy(name, uid=str(len(t.kube.history) + 1), mode="Recommend"))
    return await t.until(lambda: name in t.names, within=SOON)


@pytest.mark.parametrize("method", ["LIST", "WATCH"])
@pytest.mark.parametrize("status", REFUSALS)
def test_what_is_refused_for_a_while_is_asked_for_again(
    tmp_path: Path, method: str, status: int
) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        hinder(t, method, lambda: refuse(status))
        # The watch ends, and what it was at is not known any more.
        t.kube.compacted = len(t.kube.history) + (method == "LIST")
        t.kube.tell(None)
        await t.pass_by(WHILE)
        assert t.kube.replicas == 2
        allow(t)
        await takes_up(t)

    virtually(tmp_path / "token", scenario)


@pytest.mark.parametrize("code", ERRORS)
def test_an_error_within_a_watch_does_not_end_anything(tmp_path: Path, code: int) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        status = {"kind": "Status", "code": code, "message": "etcd is away", "metadata": {}}
        t.kube.tell({"type": "ERROR", "object": status})
        await takes_up(t)
        assert t.kube.replicas == 2

    virtually(tmp_path / "token", scenario)


@pytest.mark.parametrize("nonsense", ["", "{", "[]", "null", "<html></html>", '{"items": 1}'])
def test_nonsense_for_a_list_does_not_end_anything(tmp_path: Path, nonsense: str) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        hinder(t, "LIST", lambda: web.Response(text=nonsense, content_type="application/json"))
        t.kube.compacted = len(t.kube.history) + 1
        t.kube.tell(None)
        await t.pass_by(WHILE)
        assert t.kube.replicas == 2
        allow(t)
        await takes_up(t)

    virtually(tmp_path / "token", scenario)


def test_nonsense_for_a_lease_does_not_end_the_campaign(tmp_path: Path) -> None:
    async def scenario(t: Together) -> None:
        lease = t.operator.lease
        assert lease is not None
        await settled(t)
        assert lease.held
        t.kube.mock.obstacle = lambda request: (
            web.json_response({}) if "/leases" in request.path else None
        )
        await t.pass_by(WHILE)
        assert not lease.held
        allow(t)
        await t.until(lambda: lease.held, within=5)

    virtually(tmp_path / "token", scenario, lease=True)


def test_a_watch_that_drops_every_few_seconds_loses_nothing_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        before = calm()
        for number in range(100):
            t.kube.tell(None)
            await t.pass_by(3)
            if number % 10 == 0:
                await takes_up(t, f"w{number}")
                t.kube.delete(f"w{number}")
        await t.until(lambda: t.names == ["orders"], within=SOON)
        await nothing_is_left(t, before)

    virtually(tmp_path / "token", scenario)


def test_who_is_told_when_to_come_again_does_not_come_earlier(tmp_path: Path) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        clock, asked = asyncio.get_running_loop().time, list[float]()

        def throttle() -> web.Response:
            asked.append(clock())
            if len(asked) == 3:
                allow(t)
            return refuse(429, **{"Retry-After": "40"})

        hinder(t, "LIST", throttle)
        t.kube.tell({"type": "ERROR", "object": {"code": 410}})
        await t.pass_by(150)
        assert [round(later - asked[0]) for later in asked] == [0, 40, 80]
        await takes_up(t)

    virtually(tmp_path / "token", scenario)


def test_a_right_that_is_missing_for_five_minutes_is_counted_and_waited_for(
    tmp_path: Path,
) -> None:
    async def scenario(t: Together) -> None:
        hinder(t, "LIST", lambda: refuse(403))
        t.outbox.has_backlog()
        t.kube.put(busy())
        await t.pass_by(300)
        errors = t.operator.permissions.errors["list", "outboxscalers"]
        assert 15 < errors < 40
        assert await t.probe("/livez") == 200
        allow(t)
        await t.until(lambda: t.kube.replicas == 7, within=SOON)

    virtually(tmp_path / "token", scenario)


def test_a_token_that_expires_before_there_is_a_new_one_is_outlived(tmp_path: Path) -> None:
    token = tmp_path / "token"

    async def scenario(t: Together) -> None:
        await settled(t)
        t.kube.mock.obstacle = lambda request: (
            refuse(401) if request.headers["Authorization"] != "Bearer second" else None
        )
        t.kube.tell(None)
        await t.pass_by(300)
        # No storm of logins either.
        assert 20 < t.kube.mock.hindered < 150
        token.unlink()
        await t.pass_by(30)
        token.write_text("second\n", encoding="utf-8")
        t.outbox.has_backlog()
        await t.until(lambda: t.kube.replicas == 7, within=SOON)
        await takes_up(t)

    virtually(token, scenario)


def test_a_definition_that_is_replaced_is_waited_for(tmp_path: Path) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        t.kube.delete("orders")
        t.kube.mock.obstacle = lambda request: (
            refuse(404) if request.path.startswith(DEFINITION) else None
        )
        t.kube.tell(None)
        await t.pass_by(300)
        assert t.names == []
        assert await t.probe("/livez") == 200
        allow(t)
        t.kube.compacted = len(t.kube.history) + 1
        t.outbox.has_backlog()
        t.kube.put(busy(uid="2"))
        await t.until(lambda: t.kube.replicas == 7, within=SOON)

    virtually(tmp_path / "token", scenario)


def test_an_end_that_hangs_ends_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr("pgoutbox_operator.run.os.kill", lambda _, number: killed.append(number))

    async def scenario(t: Together) -> None:
        await settled(t)
        stop, released = t.operator.supervisor.stop, asyncio.Event()

        async def hang() -> None:
            await released.wait()
            await stop()

        monkeypatch.setattr(t.operator.supervisor, "stop", hang)
        t.kube.tell({"type": "ERROR", "object": {"code": 500}})
        await t.pass_by(15)
        assert killed == []
        await t.pass_by(10)
        assert killed == [signal.SIGKILL]
        released.set()
        await takes_up(t)

    virtually(tmp_path / "token", scenario)


def test_beginning_anew_again_and_again_leaves_nothing_behind(tmp_path: Path) -> None:
    async def scenario(t: Together) -> None:
        await settled(t)
        status = {"kind": "Status", "code": 500, "message": "etcd is away", "metadata": {}}
        before = calm()
        for _ in range(30):
            t.kube.tell({"type": "ERROR", "object": status})
            await t.pass_by(10)
            await t.until(lambda: t.names == ["orders"] and t.kube.watches, within=SOON)
        await nothing_is_left(t, before)
        assert t.kube.replicas == 2
        assert "ExternalScale" not in t.kube.said

    virtually(tmp_path / "token", scenario)
