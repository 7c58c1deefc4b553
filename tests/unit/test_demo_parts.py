"""The demo's small parts: its plan, what it tells workers and reads from them, what it shows."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from pgoutbox.demo.place import Place
from pgoutbox.demo.plan import QUICKEST, SLOWEST, WORKERS, Plan
from pgoutbox.demo.table import PLAIN_INTERVAL, Picture, PlainScreen, WorkerLine, drawn
from pgoutbox.demo.workers import Told, check, environment, read_logs
from pgoutbox.settings import SettingsError

if TYPE_CHECKING:
    from pathlib import Path

PLACE = Place("host=/tmp dbname=x", "somewhere")


@pytest.mark.parametrize("rate", [40, 80, 200])
def test_three_workers_are_quicker_than_the_shop_and_one_is_slower(rate: float) -> None:
    one = Plan(rate=rate).slots / ((QUICKEST + SLOWEST) / 2)
    assert one < rate < len(WORKERS) * one


def test_a_worker_gets_none_of_the_settings_around_the_demo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGOUTBOX_DSN", "host=production")
    monkeypatch.setenv("PGOUTBOX_CONFIG", "/etc/pgoutbox.toml")
    monkeypatch.setenv("PGOUTBOX_DATABASE__INSECURE", "true")
    environ = environment(PLACE, "worker-1", slots=8)
    assert environ["PGOUTBOX_DSN"] == PLACE.dsn
    assert "PGOUTBOX_CONFIG" not in environ
    assert environ["PGOUTBOX_DATABASE__INSECURE"] == "true"


def test_the_settings_of_the_demos_workers_are_accepted() -> None:
    check(PLACE.dsn)


def test_a_dsn_that_workers_would_refuse_is_refused_before_anything_starts() -> None:
    with pytest.raises(SettingsError):
        check("host=db.example")


def test_logs_of_several_workers_are_added_up(tmp_path: Path) -> None:
    def log(name: str, *lines: dict[str, Any], torn: str = "") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines) + torn)
        return path

    killed = log("a", {"event": "reclaimed", "count": 2, "claimed": 9}, torn='{"event": "reclai')
    other = log(
        "b",
        {"event": "reclaimed", "count": 3, "claimed": 3},
        {"event": "lease lost", "count": 4, "stage": "publish"},
        {"event": "lease lost", "count": 1, "stage": "finalize"},
        {"event": "publish failed", "count": 8},
        {"event": "drain ended", "finished": 1, "handed_back": 6, "seconds": 0.1},
    )
    assert read_logs([killed, other]) == Told(reclaimed=5, lease_lost=5, handed_back=6)


def test_plain_lines_say_each_sentence_once_and_the_figures_now_and_then() -> None:
    now, lines = 0.0, list[str]()
    screen = PlainScreen(lines.append, clock=lambda: now)
    screen.show(Picture(now="The shop sells."))
    screen.show(Picture(now="The shop sells.", committed=3))
    assert lines == ["  0.0 s  The shop sells."]
    now = PLAIN_INTERVAL
    screen.show(Picture(now="The shop sells.", committed=4))
    screen.show(Picture(now="The shop has closed.", committed=5))
    assert len(lines) == 3
    assert "4 committed, 0 rolled back" in lines[1]
    assert lines[2].endswith("The shop has closed.")


def test_the_table_shows_every_worker_and_what_happens_now() -> None:
    workers = (WorkerLine("worker-1", "killed", 7), WorkerLine("worker-2", "works", 2))
    console = Console(width=100, file=io.StringIO(), record=True)
    console.print(drawn(Picture(now="worker-1 was killed.", delivered=42, workers=workers)))
    text = console.export_text()
    assert "worker-1 │ killed        │     7" in text
    assert "worker-2 │ works         │     2" in text
    assert "42" in text
    assert "worker-1 was killed." in text
