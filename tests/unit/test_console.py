"""What strangers wrote reaches a terminal as text, and never as orders to it."""

from __future__ import annotations

import json

import pytest

from pgoutbox.cli.console import complain, say, say_json, shown

OBEYED = ["\x1b[2J", "\x1b]0;title\x07", "\x9b31m", "\r", "\x08", "\x7f", "\u202e", "\u2066"]


@pytest.mark.parametrize("control", OBEYED)
def test_a_terminal_is_given_nothing_to_obey(
    control: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say(f"a{control}b")
    complain(f"a{control}b")
    say_json({control: control})
    out, err = capsys.readouterr()
    assert not set(out + err) & set("\x1b\x07\x9b\r\x08\x7f\u202e\u2066")


@pytest.mark.parametrize("control", OBEYED)
def test_json_keeps_what_it_spells_otherwise(
    control: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say_json({"error": f"a{control}b"})
    assert json.loads(capsys.readouterr().out) == {"error": f"a{control}b"}


@pytest.mark.parametrize("text", ["a\tb\nc", "Größe 3 m²", "日本\u3000語", "👩\u200d🔧", "5\xa0€"])
def test_what_people_write_stays_as_it_is(text: str) -> None:
    assert shown(text) == text


def test_line_ends_of_other_systems_are_line_ends() -> None:
    assert shown("a\r\nb") == "a\nb"
