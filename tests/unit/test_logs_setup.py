from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING

import pytest
import structlog

from pgoutbox import events
from pgoutbox.telemetry.logs import Logs
from pgoutbox.telemetry.logs_setup import LogFormat, configure
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from collections.abc import Iterator


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def start(logs: Logs) -> None:
    logs.on_event(events.WorkerStarted("pod-1", "7f", ("orders",)))


def test_a_pipe_gets_one_json_object_a_line() -> None:
    out = io.StringIO()
    configure("auto", stream=out)
    start(Logs())
    line = json.loads(out.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "worker started",
        "level": "info",
        "owner": "pod-1",
        "incarnation": "7f",
        "destinations": ["orders"],
    }


def test_a_terminal_gets_lines_for_people() -> None:
    out = Terminal()
    configure("auto", stream=out)
    start(Logs())
    assert "worker started" in out.getvalue()
    assert "\x1b[" in out.getvalue()


def test_a_terminal_gets_json_and_a_pipe_lines_for_people_when_told_so() -> None:
    out = Terminal()
    configure("json", stream=out)
    start(Logs())
    assert json.loads(out.getvalue())["event"] == "worker started"
    pipe = io.StringIO()
    configure("console", stream=pipe)
    start(Logs())
    assert "worker started" in pipe.getvalue()
    assert "\x1b[" not in pipe.getvalue()


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_traceback_shows_no_values_of_variables(log_format: LogFormat) -> None:
    out = io.StringIO()
    configure(log_format, stream=out)

    def crash(payload: bytes) -> None:
        raise KeyError(len(payload))

    with pytest.raises(KeyError) as caught:
        crash(b"hunter2")
    Logs().on_event(events.PublisherFailed(make_message(), caught.value))
    text = out.getvalue()
    assert "Traceback (most recent call last)" in text
    assert "KeyError: 7" in text
    assert "b'hunter2'" not in text


def test_libraries_speak_the_same_format_from_warnings_on() -> None:
    out = io.StringIO()
    configure("json", stream=out)
    logging.getLogger("aiohttp.server").info("chatter")
    logging.getLogger("some.library").warning("discarding %s", "connection")
    line = json.loads(out.getvalue())
    assert (line["logger"], line["level"]) == ("some.library", "warning")
    assert line["event"] == "discarding connection"


def test_below_the_level_nothing_is_written() -> None:
    out = io.StringIO()
    configure("json", level="warning", stream=out)
    start(Logs())
    assert not out.getvalue()


def test_standard_output_is_left_to_destinations(capsys: pytest.CaptureFixture[str]) -> None:
    configure("json")
    start(Logs())
    captured = capsys.readouterr()
    assert not captured.out
    assert "worker started" in captured.err
