"""A release of the chart on a real cluster, by the programs that people use: helm and kubectl."""

from __future__ import annotations

import json
import subprocess
import threading
import uuid
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

CHART = Path(__file__).resolve().parents[2] / "charts" / "pgoutbox"
PATIENCE = "120s"
WORKERS = "app.kubernetes.io/component=workers"
NAME = "outbox"
DEPLOYMENT = "deployment/outbox-pgoutbox-workers"

Object = dict[str, Any]


def run(*words: str, stdin: str | None = None) -> str:
    """What a program prints. Raises AssertionError with what it complains of."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


class Release:
    """One namespace, held to the level `restricted` of pod security, and what Helm puts there."""

    def __init__(self, image: str, dsn: str) -> None:
        self.namespace = f"e2e-{uuid.uuid4().hex[:8]}"
        self._image = image
        self._dsn = dsn

    def __enter__(self) -> Self:
        level = "pod-security.kubernetes.io/enforce=restricted"
        run("kubectl", "create", "namespace", self.namespace)
        run("kubectl", "label", "namespace", self.namespace, level)
        secret = f"--from-literal=dsn={self._dsn}"
        self.kubectl("create", "secret", "generic", "outbox-dsn", secret)
        return self

    def __exit__(self, *_: object) -> None:
        run("kubectl", "delete", "namespace", self.namespace, "--wait=false")

    def kubectl(self, *words: str, stdin: str | None = None) -> str:
        """In the namespace."""
        return run("kubectl", "--namespace", self.namespace, *words, stdin=stdin)

    def helm(self, *words: str) -> str:
        """In the namespace."""
        return run("helm", "--namespace", self.namespace, *words)

    def install(self, values: Mapping[str, str]) -> None:
        """Install it and wait until all is ready. ``values`` are those of the chart, by path."""
        self._set("install", values)

    def upgrade(self, values: Mapping[str, str]) -> None:
        """The same for what is there, with these values changed."""
        self._set("upgrade", values, "--reuse-values")

    def _set(self, verb: str, values: Mapping[str, str], *words: str) -> None:
        repository, _, tag = self._image.rpartition(":")
        given = {
            "image.repository": repository,
            "image.tag": tag,
            "database.existingSecret": "outbox-dsn",
            "database.insecure": "true",
            **values,
        }
        pairs = [word for path, value in given.items() for word in ("--set", f"{path}={value}")]
        self.helm(verb, NAME, str(CHART), *words, "--wait", "--timeout", PATIENCE, *pairs)

    def pods(self) -> dict[str, Object]:
        """The workers' pods by name, those that end included."""
        found = json.loads(self.kubectl("get", "pods", "-l", WORKERS, "-o", "json"))["items"]
        return {pod["metadata"]["name"]: pod for pod in found}

    def rolled_out(self) -> None:
        """Return once the workers are as they shall be."""
        self.kubectl("rollout", "status", DEPLOYMENT, f"--timeout={PATIENCE}")

    def evict(self, pod: str) -> None:
        """Through the Eviction API, as a node's drain does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": self.namespace},
        }
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod}/eviction"
        run("kubectl", "create", "--raw", path, "-f", "-", stdin=json.dumps(body))


class Exits:
    """How the workers' containers end, seen while it happens: a deleted pod tells nothing more."""

    def __init__(self, release: Release) -> None:
        self.codes: dict[str, int] = {}
        """By pod, of those that ended."""
        self.gone: set[str] = set()
        self._changed = threading.Condition()
        watch = ["get", "pods", "--watch", "--output-watch-events", "-o", "json", "-l"]
        self._watch = subprocess.Popen(
            ["kubectl", "--namespace", release.namespace, *watch, WORKERS],  # noqa: S607 - found as by people
            stdout=subprocess.PIPE,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, args=(self._watch.stdout,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._watch.terminate()
        self._watch.wait()
        self._thread.join()
        assert self._watch.stdout is not None
        self._watch.stdout.close()

    def until_gone(self, *pods: str, patience: float = 60.0) -> None:
        """Return once these pods are no more."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.gone.issuperset(pods), patience), self.gone

    def _read(self, stream: IO[str]) -> None:
        decoder, text = json.JSONDecoder(), ""
        for line in stream:
            text += line
            try:
                event, end = decoder.raw_decode(text.lstrip())
            except ValueError:
                continue
            text = text.lstrip()[end:]
            with self._changed:
                self._note(event)
                self._changed.notify_all()

    def _note(self, event: Object) -> None:
        pod = event["object"]
        name = pod["metadata"]["name"]
        for status in pod["status"].get("containerStatuses", []):
            if ended := status["state"].get("terminated"):
                self.codes[name] = ended["exitCode"]
        if event["type"] == "DELETED":
            self.gone.add(name)


def process_of(pod: Object) -> int | None:
    """The process id of the pod's worker, where its node is this machine."""
    uid = pod["metadata"]["uid"]
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            inside = uid in (folder / "cgroup").read_text()
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if inside and b"pgoutbox" in command:
            return int(folder.name)
    return None
