"""A Prometheus and an Alertmanager of a test's own, and the place where alerts arrive."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urlencode

import yaml

from tests.support.brokers.ladder import (
    container_of,
    free_port,
    nothing,
    program,
    start_process,
)
from tests.support.observing import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

PATIENCE = 30.0


class Tool(NamedTuple):
    """A server that a test starts itself: where it is found, and the image that has it."""

    name: str
    programs: tuple[str, ...]
    image: str


# Debian calls the second one differently, since it has another program of that name.
PROMETHEUS = Tool("PROMETHEUS", ("prometheus",), "prom/prometheus:v2.53.5")
ALERTMANAGER = Tool(
    "ALERTMANAGER", ("prometheus-alertmanager", "alertmanager"), "prom/alertmanager:v0.28.1"
)


class Alert(NamedTuple):
    """One alert of a notification."""

    name: str
    status: str
    """``firing`` or ``resolved``."""
    labels: Mapping[str, str]
    annotations: Mapping[str, str]


class Inbox:
    """Takes what Alertmanager sends to a webhook."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []
        """What has arrived, in order."""
        self._changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def until(self, name: str, status: str = "firing", **labels: str) -> Alert:
        """Return the first alert of this name, in this state, with these labels."""

        def found() -> Alert | None:
            return next((alert for alert in self.alerts if fits(alert)), None)

        def fits(alert: Alert) -> bool:
            told = (alert.name, alert.status) == (name, status)
            return told and labels.items() <= alert.labels.items()

        with self._changed:
            alert = self._changed.wait_for(found, PATIENCE)
        if alert is None:
            arrived = [(alert.name, alert.status, dict(alert.labels)) for alert in self.alerts]
            raise AssertionError(f"no {name} {status} with {labels} in {PATIENCE:g} s: {arrived}")
        return alert

    def take(self, body: bytes) -> None:
        """Note what a notification says."""
        alerts = [
            Alert(one["labels"]["alertname"], one["status"], one["labels"], one["annotations"])
            for one in json.loads(body)["alerts"]
        ]
        with self._changed:
            self.alerts += alerts
            self._changed.notify_all()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        inbox = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                inbox.take(self.rfile.read(int(self.headers["content-length"])))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class Prometheus(NamedTuple):
    """A running one."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that an instant query finds, each with ``metric`` and ``value``."""
        asked = urlencode({"query": expression})
        address = f"{self.url}/api/v1/query?{asked}"
        with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - ours
            found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
            return found

    def until(self, expression: str) -> list[dict[str, Any]]:
        """Return what the query finds, once it finds something."""
        eventually(lambda: bool(self.query(expression)), f"a series of {expression}", every=0.1)
        return self.query(expression)


@contextlib.contextmanager
def alertmanager(folder: Path, inbox: Inbox) -> Iterator[str]:
    """``host:port`` of one that passes every alert on to the inbox at once, and its end."""
    settings = folder / "alertmanager.yml"
    route = {
        "receiver": "inbox",
        "group_by": ["..."],
        "group_wait": "0s",
        "group_interval": "1s",
        "repeat_interval": "1h",
    }
    receiver = {"name": "inbox", "webhook_configs": [{"url": inbox.url, "send_resolved": True}]}
    settings.write_text(yaml.safe_dump({"route": route, "receivers": [receiver]}))
    address = f"127.0.0.1:{free_port()}"
    argv = [
        f"--config.file={settings}",
        f"--storage.path={folder / 'alertmanager'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
    ]
    with _running(ALERTMANAGER, argv, folder, f"http://{address}/-/ready"):
        yield address


@contextlib.contextmanager
def prometheus(
    folder: Path,
    groups: Sequence[Mapping[str, Any]],
    *,
    targets: Mapping[str, Sequence[str]],
    notify: str,
) -> Iterator[Prometheus]:
    """One that scrapes and evaluates each second.

    ``targets``: addresses by the namespace that their series are in. ``notify``: Alertmanager.
    """
    (folder / "rules.yml").write_text(yaml.safe_dump({"groups": list(groups)}))
    scraped = [
        {"targets": list(addresses), "labels": {"namespace": namespace}}
        for namespace, addresses in targets.items()
    ]
    settings = folder / "prometheus.yml"
    settings.write_text(
        yaml.safe_dump(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(folder / "rules.yml")],
                "alerting": {"alertmanagers": [{"static_configs": [{"targets": [notify]}]}]},
                "scrape_configs": [
                    {"job_name": "pgoutbox", "honor_labels": True, "static_configs": scraped}
                ],
            }
        )
    )
    address = f"127.0.0.1:{free_port()}"
    argv = [
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / 'prometheus'}",
        f"--web.listen-address={address}",
    ]
    with _running(PROMETHEUS, argv, folder, f"http://{address}/-/ready"):
        yield Prometheus(f"http://{address}")


@contextlib.contextmanager
def _running(tool: Tool, argv: Sequence[str], folder: Path, probe: str) -> Iterator[None]:
    """Run it while the context lasts, entered once the probe says that it is ready."""
    variable = f"PGOUTBOX_TEST_{tool.name}"
    found = os.environ.get(variable) or next(filter(None, map(program, tool.programs)), None)
    if found:
        with start_process([found, *argv], lambda: _answers(probe)):
            yield
        return
    options = {
        "command": shlex.join(argv),
        "volumes": [(str(folder), str(folder), "rw")],
        # It scrapes processes of this machine.
        "network_mode": "host",
        "user": f"{os.getuid()}:{os.getgid()}",
    }
    with container_of(tool.image, **options) as container:
        if container is None:
            ways = f"put {' or '.join(tool.programs)} into your PATH"
            nothing(tool.name, ways, known=f"Set {variable} to the path of the program")
        try:
            eventually(lambda: _answers(probe), f"an answer of {tool.image}", every=0.1)
        except AssertionError as error:
            error.add_note(b"\n".join(container.get_logs()).decode()[-2000:])
            raise
        yield


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=1) as answer:  # noqa: S310 - ours
            return bool(answer.status == 200)
    except OSError:
        return False
