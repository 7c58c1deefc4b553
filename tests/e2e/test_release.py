"""From an empty namespace to deliveries, and back."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import psycopg

from pgoutbox import Message, enqueue
from pgoutbox.database import migrate
from tests.support.release import DEPLOYMENT, NAME, run

if TYPE_CHECKING:
    from tests.support.receiver import Receiver
    from tests.support.release import Release

PAID = Message(aggregate_type="order", aggregate_id="1", event_type="Paid", payload={"id": 1})


def test_an_install_migrates_delivers_scales_and_leaves_nothing_behind(
    release: Release, database: str, receiver: Receiver
) -> None:
    release.install({"workers.settings.DESTINATIONS__DEFAULT__URL": receiver.url})
    with psycopg.connect(database, autocommit=True) as conn:
        assert migrate.pending(conn, schema="public") == []
        with conn.transaction():
            message_id = enqueue(conn, PAID)
        receiver.until_arrived(1)
        [(owner,)] = conn.execute("SELECT owner FROM outbox_workers").fetchall()
    assert receiver.arrivals == {str(message_id): 1}
    assert owner in release.pods()
    assert "Succeeded" in release.helm("test", NAME)
    told = release.kubectl("exec", DEPLOYMENT, "--", "pgoutbox", "status", "--json")
    assert json.loads(told)["workers"][0]["owner"] == owner
    mounted = release.kubectl(
        *("exec", DEPLOYMENT, "--", "python", "-c"),
        "import os; print(os.path.exists('/var/run/secrets/kubernetes.io'))",
    )
    assert mounted == "False\n"
    release.kubectl("wait", "outboxscaler", "--all", "--for=condition=Ready", "--timeout=60s")

    release.helm("uninstall", NAME, "--wait")
    release.kubectl("wait", "pod", "--all", "--for=delete", "--timeout=60s")
    kinds = "all,configmap,serviceaccount,role,rolebinding,pdb,secret,outboxscaler"
    left = release.kubectl("get", kinds, "-o", "name").split()
    assert sorted(left) == [
        "configmap/kube-root-ca.crt",
        "secret/outbox-dsn",
        "serviceaccount/default",
    ]
    began = time.monotonic()
    run("kubectl", "delete", "namespace", release.namespace, "--wait", "--timeout=60s")
    assert time.monotonic() - began < 30
    run("kubectl", "create", "namespace", release.namespace)
