"""Fifty objects that work: what the process takes, and what it asks of databases."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
import yaml

from tests.support.kube import NAMESPACE, scaler
from tests.support.many_databases import databases
from tests.support.many_scalers import Deployment, ManyScalers
from tests.support.operator_process import OperatorProcess, operating
from tests.support.outbox_rows import fill

OBJECTS = 50
TICK = 5
MOST_MB = 120.0
CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity
 WHERE application_name = 'pgoutbox-operator' AND datname = current_database()
"""


class Used(NamedTuple):
    """By a process, so far."""

    seconds: float
    cpu: float
    rss_mb: float
    peak_mb: float


def used(pid: int) -> Used:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    kilobytes = {
        name: int(value.split()[0])
        for name, value in (line.split(":", 1) for line in status.splitlines())
        if name in {"VmRSS", "VmHWM"}
    }
    times = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    cpu = (int(times[11]) + int(times[12])) / os.sysconf("SC_CLK_TCK")
    return Used(time.monotonic(), cpu, kilobytes["VmRSS"] / 1024, kilobytes["VmHWM"] / 1024)


def settle(kube: ManyScalers, dsns: list[str]) -> None:
    for number, dsn in enumerate(dsns):
        with psycopg.connect(dsn) as conn:
            fill(conn, 4000)
        kube.secrets[f"outbox-{number}"] = {"dsn": dsn}
    for number in range(OBJECTS):
        name = f"workers-{number}"
        kube.deployments[name] = Deployment(2)
        body = scaler(
            name,
            uid=str(number),
            scaleTargetRef={"name": name},
            database={"secretKeyRef": {"name": f"outbox-{number % len(dsns)}"}},
            scaleUp={"periodSeconds": TICK},
            seedRatePerReplica="50",
        )
        kube.put(body)


def kubeconfig(folder: Path, port: int) -> str:
    config: dict[str, Any] = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return str(path)


def connections(dsn: str) -> int:
    with psycopg.connect(dsn) as conn:
        [(count,)] = conn.execute(CONNECTIONS)
        return int(count)


async def until_visited(process: OperatorProcess, kube: ManyScalers, times: int) -> None:
    """Return once each object was visited so often more."""
    wanted = kube.asked["GET scale"] + times * OBJECTS
    await process.until(lambda: kube.asked["GET scale"] >= wanted, within=(times + 2) * TICK + 20)


async def measured(
    tmp_path: Path, server: str, template: str, *, count: int, ticks: int
) -> tuple[Used, Used, int]:
    """Before and after so many ticks; and how many requests these took."""
    with databases(server, template, count) as dsns:
        async with ManyScalers() as kube:
            settle(kube, dsns)
            path = kubeconfig(tmp_path, kube.port)
            async with operating(NAMESPACE, tmp_path, KUBECONFIG=path) as process:
                await process.until(lambda: all(d.replicas > 2 for d in kube.deployments.values()))
                await until_visited(process, kube, ticks // 20)
                before, asked = used(process.process.pid), kube.asked.total()
                await until_visited(process, kube, ticks)
                after, asked = used(process.process.pid), kube.asked.total() - asked
                assert [connections(dsn) for dsn in dsns] == [1] * count
                assert len(kube.statuses) == OBJECTS
                assert all(kube.conditions(name)["Ready"][0] == "True" for name in kube.scalers)
                assert await process.end() == 0
    return before, after, asked


def told(before: Used, after: Used, asked: int, ticks: int) -> str:
    seconds = after.seconds - before.seconds
    cpu = after.cpu - before.cpu
    return (
        f"RSS {after.rss_mb:.1f} MB (at most {after.peak_mb:.1f}, {before.rss_mb:.1f} before),"
        f" {1000 * cpu / ticks:.0f} ms of CPU and {asked / ticks:.0f} requests a tick,"
        f" {100 * cpu / seconds:.1f} % of a core"
    )


async def test_fifty_objects_and_ten_databases_take_a_connection_each_and_little_memory(
    tmp_path: Path, server_dsn: str, template: str
) -> None:
    before, after, asked = await measured(tmp_path, server_dsn, template, count=10, ticks=1)
    print(told(before, after, asked, 1))  # noqa: T201 - what was measured
    assert after.peak_mb <= MOST_MB


@pytest.mark.bench
@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [1, 10])
async def test_the_memory_of_fifty_objects_stays_what_it_is(
    tmp_path: Path, server_dsn: str, template: str, count: int
) -> None:
    ticks = 60
    before, after, asked = await measured(tmp_path, server_dsn, template, count=count, ticks=ticks)
    print(f"{count} databases:", told(before, after, asked, ticks))  # noqa: T201 - as above
    assert after.peak_mb <= MOST_MB
    assert after.rss_mb - before.rss_mb <= 3
