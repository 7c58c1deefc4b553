"""However a worker's pod goes, nothing is lost; where it goes in order, nothing comes twice."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from tests.support.release import DEPLOYMENT, Exits, Release, process_of
from tests.support.steady import Load, outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.support.receiver import Receiver

PER_SECOND = 500
FIGURES = Path("build/e2e")


@pytest.fixture
def workers(release: Release, receiver: Receiver, database: str) -> Iterator[Release]:
    """Two of them, at work."""
    release.install(
        {
            "autoscaling.type": "none",
            "workers.replicas": "2",
            "workers.terminationGracePeriodSeconds": "12",
            "workers.drainSoftSeconds": "2",
            "workers.settings.DESTINATIONS__DEFAULT__URL": receiver.url,
            "workers.settings.DESTINATIONS__DEFAULT__PUBLISH_TIMEOUT": "1",
            "workers.settings.DATABASE__STATEMENT_TIMEOUT": "1",
            "workers.settings.LEASE__DURATION": "6",
            "workers.settings.LEASE__RENEW": "2",
        }
    )
    yield release
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("TRUNCATE outbox")


def roll(release: Release, exits: Exits) -> list[str]:
    before = list(release.pods())
    release.kubectl("rollout", "restart", DEPLOYMENT)
    release.rolled_out()
    exits.until_gone(*before)
    return before


def delete(release: Release, exits: Exits) -> list[str]:
    pod = next(iter(release.pods()))
    release.kubectl("delete", "pod", pod)
    exits.until_gone(pod)
    release.rolled_out()
    return [pod]


def scale_in(release: Release, exits: Exits) -> list[str]:
    before = set(release.pods())
    release.kubectl("scale", DEPLOYMENT, "--replicas=1")
    release.rolled_out()
    [pod] = before - {name for name, pod in release.pods().items() if not _ends(pod)}
    exits.until_gone(pod)
    return [pod]


def evict(release: Release, exits: Exits) -> list[str]:
    pods = list(release.pods())
    for pod in pods:
        release.evict(pod)
        exits.until_gone(pod)
        release.rolled_out()
    return pods


def _ends(pod: dict[str, dict[str, object]]) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def figures(name: str, **found: object) -> None:
    """For whoever compares runs."""
    FIGURES.mkdir(parents=True, exist_ok=True)
    with (FIGURES / "drain.jsonl").open("a") as file:
        file.write(json.dumps({"case": name, **found}) + "\n")


@pytest.mark.parametrize("leave", [roll, delete, scale_in, evict])
def test_a_pod_that_leaves_in_order_loses_repeats_and_spends_nothing(
    workers: Release, database: str, receiver: Receiver, leave: Callable[..., list[str]]
) -> None:
    with Load(database, PER_SECOND) as load, Exits(workers) as exits:
        receiver.until_arrived(PER_SECOND)
        left = leave(workers, exits)
    found = outcome(load, receiver)
    figures(leave.__name__, **asdict(found))
    assert (found.lost, found.duplicates, found.attempts_spent) == (0, 0, 0), found
    assert {exits.codes[pod] for pod in left} == {0}
    assert found.longest_gap < 1.5, found


def test_a_killed_process_loses_nothing_and_its_pod_goes_on_under_the_same_name(
    workers: Release, database: str, receiver: Receiver
) -> None:
    name, pod = next(iter(workers.pods().items()))
    pid = process_of(pod)
    if pid is None:
        pytest.skip("the cluster's node is not this machine")
    with Load(database, PER_SECOND) as load:
        receiver.until_arrived(PER_SECOND)
        os.kill(pid, signal.SIGKILL)
        workers.kubectl("wait", f"pod/{name}", "--for=condition=Ready=false", "--timeout=20s")
        workers.kubectl("wait", f"pod/{name}", "--for=condition=Ready", "--timeout=60s")
    found = outcome(load, receiver)
    figures("sigkill", **asdict(found))
    [status] = workers.pods()[name]["status"]["containerStatuses"]
    assert status["lastState"]["terminated"]["exitCode"] == 137
    assert found.lost == 0, found


def test_a_pod_that_is_deleted_by_force_loses_nothing(
    workers: Release, database: str, receiver: Receiver
) -> None:
    pod = next(iter(workers.pods()))
    with Load(database, PER_SECOND) as load:
        receiver.until_arrived(PER_SECOND)
        workers.kubectl("delete", "pod", pod, "--grace-period=0", "--force")
        workers.rolled_out()
    found = outcome(load, receiver)
    figures("force", **asdict(found))
    assert found.lost == 0, found
