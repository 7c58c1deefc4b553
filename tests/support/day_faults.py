"""Everything that goes wrong in a day. Each fault lasts for a while, and ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from aiohttp import web

from tests.support.kube import refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from random import Random

    from tests.support.day import Day
    from tests.support.day_database import DayDatabase

    Fault = Callable[[Day, Random], Awaitable[None]]

STATUSES = (400, 401, 403, 404, 409, 410, 422, 429, 500, 502, 503, 504)
CODES = (401, 403, 410, 429, 500, 504)
NONSENSE = ("", "null", "[]", "{}", "{", "<html></html>", '"gone"')
SHORTEST, LONGEST = 5.0, 300.0
"""Seconds of a fault; most are short."""


async def last(rng: Random) -> None:
    await asyncio.sleep(min(LONGEST, SHORTEST + rng.expovariate(1 / 40)))


async def api_refuses(day: Day, rng: Random) -> None:
    await day.api.shut()
    await last(rng)
    await day.api.open()


async def api_hangs(day: Day, rng: Random) -> None:
    day.api.silence()
    await last(rng)
    if rng.random() < 0.5:
        day.api.lose()
    await day.api.open()
    await asyncio.sleep(60)
    day.api.expire()


async def api_drops(day: Day, rng: Random) -> None:
    for _ in range(rng.randint(1, 5)):
        day.api.cut()
        await asyncio.sleep(rng.uniform(0, 10))


async def api_errs(day: Day, rng: Random) -> None:
    status, share = rng.choice(STATUSES), rng.choice((0.2, 0.5, 1.0))
    headers = {"Retry-After": "7"} if status == 429 else {}

    async def obstacle(_: web.BaseRequest) -> web.StreamResponse | None:
        return refuse(status, **headers) if rng.random() < share else None

    await hindered(day, rng, obstacle)


async def api_talks_nonsense(day: Day, rng: Random) -> None:
    text, share = rng.choice(NONSENSE), rng.choice((0.2, 1.0))

    async def obstacle(_: web.BaseRequest) -> web.StreamResponse | None:
        if rng.random() >= share:
            return None
        return web.Response(text=text, content_type="application/json")

    await hindered(day, rng, obstacle)


async def api_is_slow(day: Day, rng: Random) -> None:
    slowest = rng.choice((2.0, 8.0, 25.0))

    async def obstacle(_: web.BaseRequest) -> web.StreamResponse | None:
        await asyncio.sleep(rng.uniform(0, slowest))
        return None

    await hindered(day, rng, obstacle)


async def hindered(
    day: Day,
    rng: Random,
    obstacle: Callable[[web.BaseRequest], Awaitable[web.StreamResponse | None]],
) -> None:
    before, day.kube.obstacle = day.kube.obstacle, obstacle
    await last(rng)
    day.kube.obstacle = before


async def watch_errs(day: Day, rng: Random) -> None:
    status = {"kind": "Status", "code": rng.choice(CODES), "message": "etcd", "metadata": {}}
    day.kube.tell({"type": "ERROR", "object": status})


async def watch_is_too_old(day: Day, _rng: Random) -> None:
    day.kube.compact()


API: tuple[Fault, ...] = (
    api_refuses,
    api_hangs,
    api_drops,
    api_errs,
    api_errs,
    api_talks_nonsense,
    api_is_slow,
    watch_errs,
    watch_is_too_old,
)


class Down:
    """A database that nobody can look at meanwhile."""

    def __init__(self, database: DayDatabase) -> None:
        self.database = database

    async def __aenter__(self) -> DayDatabase:
        self.database.down_since = asyncio.get_running_loop().time()
        return self.database

    async def __aexit__(self, *_: object) -> None:
        self.database.down_since = None


async def database_refuses(day: Day, rng: Random) -> None:
    async with Down(rng.choice(day.databases)) as database:
        await database.door.shut()
        await last(rng)
        await database.door.open()


async def database_hangs(day: Day, rng: Random) -> None:
    async with Down(rng.choice(day.databases)) as database:
        database.door.silence()
        await last(rng)
        if rng.random() < 0.5:
            database.door.lose()
        await database.door.open()
    await asyncio.sleep(60)
    database.door.expire()


async def sessions_are_terminated(day: Day, rng: Random) -> None:
    await rng.choice(day.databases).terminate()


async def secret_is_rotated(day: Day, rng: Random) -> None:
    """As it should be: the new one works before the old one does not."""
    database = rng.choice(day.databases)
    old = database.roles[database.role]
    database.role = 1 - database.role
    day.publish_secret(database)
    await asyncio.sleep(90)
    await database.do(f"ALTER ROLE {old} NOLOGIN")
    await database.terminate()
    await asyncio.sleep(60)
    await database.do(f"ALTER ROLE {old} LOGIN")


async def password_is_wrong(day: Day, rng: Random) -> None:
    """The role may not log in any more, and the Secret is changed later."""
    async with Down(rng.choice(day.databases)) as database:
        old = database.roles[database.role]
        await database.do(f"ALTER ROLE {old} NOLOGIN")
        await database.terminate()
        await last(rng)
        database.role = 1 - database.role
        day.publish_secret(database)
    await asyncio.sleep(60)
    await database.do(f"ALTER ROLE {old} LOGIN")


async def right_is_missing(day: Day, rng: Random) -> None:
    async with Down(rng.choice(day.databases)) as database:
        role = database.roles[database.role]
        await database.do(f"REVOKE EXECUTE ON FUNCTION outbox_stats(integer) FROM {role}")
        await last(rng)
        await database.do(f"GRANT EXECUTE ON FUNCTION outbox_stats(integer) TO {role}")


async def statements_time_out(day: Day, rng: Random) -> None:
    """A lock on what is asked for. Each such look costs two seconds that nothing can shorten."""
    async with Down(rng.choice(day.databases)) as database:
        database.locked = True
        await database.do("BEGIN")
        await database.do("LOCK TABLE day_answer")
        await asyncio.sleep(20)
        await database.do("ROLLBACK")
        database.locked = False


async def secret_is_away(day: Day, rng: Random) -> None:
    """Or nonsense. It is read once a minute; the last one is used while the API server is away."""
    database = rng.choice(day.databases)
    del day.kube.secrets[database.secret]
    if rng.random() < 0.5:
        wrong = rng.choice(("", "nonsense", "postgresql://u:p@h:x/", "postgresql://u@db.example/"))
        day.kube.secrets[database.secret] = {"dsn": wrong}
    await asyncio.sleep(60)
    await last(rng)
    day.publish_secret(database)


DATABASE: tuple[Fault, ...] = (
    database_refuses,
    database_hangs,
    sessions_are_terminated,
    secret_is_rotated,
    password_is_wrong,
    right_is_missing,
    secret_is_away,
)


async def lease_is_taken(day: Day, rng: Random) -> None:
    """By another replica, which dies some time later."""
    lease = day.kube.leases.get("pgoutbox-operator")
    if lease is None:
        return
    day.stolen_since = asyncio.get_running_loop().time()
    for number in range(rng.randint(1, 30)):
        stolen = {**lease["spec"], "holderIdentity": "another", "renewTime": f"{number}"}
        version = f"s{number}-{rng.random()}"
        metadata = {**lease["metadata"], "resourceVersion": version}
        day.kube.leases["pgoutbox-operator"] = {"metadata": metadata, "spec": stolen}
        await asyncio.sleep(5)
    day.stolen_since = None
    await asyncio.sleep(30)


async def object_comes_or_goes(day: Day, rng: Random) -> None:
    if "guest" in day.kube.scalers:
        day.kube.delete("guest")
        if rng.random() < 0.5:
            return
    day.invite(rng)


async def object_changes(day: Day, rng: Random) -> None:
    day.change(rng)


CLUSTER: tuple[Fault, ...] = (
    lease_is_taken,
    object_comes_or_goes,
    object_comes_or_goes,
    object_changes,
)

ALL = {"api": API, "database": DATABASE, "cluster": CLUSTER}
