from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from pgoutbox.dispatch.finalize import MAX_ERROR_CHARACTERS, as_row, clean
from pgoutbox.outcome import Bury, DeferUntil, Finish, Release, Retry, Transition
from tests.support.dispatching import a_message, settled

surrogates = st.characters(min_codepoint=0xD800, max_codepoint=0xDFFF)
anything = st.text(st.one_of(st.characters(), surrogates, st.just("\x00")))


@given(anything)
def test_any_error_becomes_text_that_postgresql_takes(error: str) -> None:
    text = clean(error)
    assert "\x00" not in text
    assert text.encode().decode() == text
    assert len(text) == len(error)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        ("a\x00b", "a\N{REPLACEMENT CHARACTER}b"),
        ("x\ud800", "x?"),
        ("\ud83d\ude00", "??"),
        ("Zürich/中文/🙂", "Zürich/中文/🙂"),
        (r"a literal \x00", r"a literal \x00"),
        ("", ""),
    ],
)
def test_what_cannot_be_stored_is_marked_and_the_rest_is_left_alone(error: str, text: str) -> None:
    assert clean(error) == text


@pytest.mark.parametrize("unit", ["a", "é", "🙂", "\x00", "\ud800"])
def test_five_megabytes_are_cut_at_a_character(unit: str) -> None:
    text = clean(unit * (5_000_000 // len(unit.encode("utf-8", "surrogatepass"))))
    assert len(text) == MAX_ERROR_CHARACTERS == 2000
    assert text == clean(unit) * 2000


@pytest.mark.parametrize("length", [1999, 2000, 2001])
def test_an_error_is_kept_whole_up_to_two_thousand_characters(length: int) -> None:
    assert len(clean("x" * length)) == min(length, 2000)


@pytest.mark.parametrize(
    "transition",
    [
        Retry(1.0, "a\x00" * 5000),
        DeferUntil(1.0, "a\x00" * 5000),
        Release(1.0, "a\x00" * 5000),
        Bury("a\x00" * 5000),
    ],
)
def test_every_transition_with_an_error_cleans_it(transition: Transition) -> None:
    error = as_row(settled(a_message(), transition)).error
    assert error is not None
    assert len(error) == 2000
    assert "\x00" not in error


def test_a_finished_message_keeps_no_error_and_no_delay() -> None:
    assert as_row(settled(a_message(), Finish())) == ("done", None, 0, None, False)
