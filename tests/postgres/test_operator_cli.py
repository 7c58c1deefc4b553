"""``pgoutbox-operator``, as people type it."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import kmock
import pytest
import yaml
from click.testing import CliRunner

from pgoutbox_operator.cli import group
from pgoutbox_operator.crd.definition import definition
from tests.support.kube import IN_SHOP, FakeKube, scaler
from tests.support.outbox_rows import fill

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import psycopg


@asynccontextmanager
async def cluster(
    folder: Path, monkeypatch: pytest.MonkeyPatch, body: dict[str, Any]
) -> AsyncIterator[FakeKube]:
    """One that a kubeconfig leads to."""
    kube = FakeKube()
    async with kube.mock, kmock.Server(kube.mock):
        kube.mock[f"get {IN_SHOP}/orders"] << body
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": str(kube.mock.url).rstrip("/")}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        }
        path = folder / "kubeconfig"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(path))
        yield kube


async def explain(*arguments: str) -> tuple[int, str]:
    """In a thread, while this one's loop serves the cluster."""
    runner = CliRunner()
    result = await asyncio.to_thread(
        runner.invoke, group, ["explain", "--seconds", "1", *arguments]
    )
    return result.exit_code, result.output or str(result.exception)


def test_the_definition_is_printed() -> None:
    result = CliRunner().invoke(group, ["crd"])
    assert yaml.safe_load(result.output) == definition()


async def test_explain_tells_what_would_be_done_and_why_and_does_nothing(
    dsn: str,
    conn: psycopg.Connection[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fill(conn, 4000)
    async with cluster(tmp_path, monkeypatch, scaler(seedRatePerReplica="50")) as kube:
        kube.secret = {"dsn": dsn}
        code, said = await explain("shop/orders")
        assert code == 0, said
        assert "replicas: more are needed to drain the backlog in time." in said
        assert "4000 messages are ready" in said
        assert "No operator has looked at it yet." in said
        assert {method for method, _ in kube.asked} == {"GET"}


async def test_explain_tells_why_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path, monkeypatch, scaler()) as kube:
        kube.secret = {}
        code, said = await explain("shop/orders")
        assert code == 0, said
        assert "It leaves workers at 2 replicas" in said
        assert "the Secret outbox-dsn has no text at the key dsn" in said


@pytest.mark.parametrize("name", ["orders", "/orders", "shop/"])
async def test_explain_wants_a_namespace_and_a_name(name: str) -> None:
    code, said = await explain(name)
    assert code == 2
    assert "NAMESPACE/NAME" in said


async def test_a_cluster_that_nothing_leads_to_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    code, said = await explain("shop/orders")
    assert code == 1
    assert "KUBECONFIG" in said
