from __future__ import annotations

import logging
import uuid
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.answers import Answers, Refused, Row, prepared, translated
from pgoutbox.errors import (
    DestinationUnavailable,
    PermanentError,
    PublishError,
    RetryableError,
)
from pgoutbox.testing import make_message

if TYPE_CHECKING:
    from pgoutbox.message import ClaimedMessage

PAYLOAD = "hunter2"
TABLE: tuple[Row, ...] = (
    (ConnectionError, DestinationUnavailable, "the connection broke"),
    (OSError, RetryableError, "something else broke"),
    (Exception, RetryableError, "the client failed"),
)


@pytest.fixture
def where() -> str:
    # What is logged once is not logged for the next test.
    return f"host-{uuid.uuid4().hex}"


def kinds(answers: Answers) -> list[type[PublishError] | None]:
    return [None if answer is None else type(answer) for answer in answers.whole()]


def test_a_message_that_nothing_was_said_about_is_not_delivered() -> None:
    answers = Answers(2)
    assert kinds(answers) == [RetryableError, RetryableError]
    assert "no answer" in str(answers.whole()[0])


def test_only_a_yes_makes_it_delivered_and_the_rest_is_for_those_without_a_word() -> None:
    answers = Answers(4)
    answers.taken(1)
    answers.failed(2, PermanentError("too large"))
    assert answers.open == [0, 3]
    answers.rest(DestinationUnavailable("gone"))
    assert kinds(answers) == [DestinationUnavailable, None, PermanentError, DestinationUnavailable]
    assert answers.open == []


def test_what_cannot_be_sent_has_its_answer_and_its_neighbours_are_ready() -> None:
    def make(message: ClaimedMessage) -> int:
        if message.body == b"bad":
            raise PermanentError("bad")
        return len(message.body)

    answers = Answers(3)
    batch = [make_message(body=body) for body in (b"1", b"bad", b"333")]
    assert prepared(batch, make, answers) == {0: 1, 2: 3}
    assert kinds(answers) == [RetryableError, PermanentError, RetryableError]


def test_what_was_refused_beside_others_that_were_taken_is_dead_and_else_retried() -> None:
    answers = Answers(5)
    for place in (0, 2, 4):
        answers.failed(place, Refused("not valid"))
    answers.failed(3, RetryableError("away"))
    answers.settle([0, 3, 4], "not valid itself")
    assert kinds(answers)[0] is Refused
    answers.taken(1)
    answers.settle([0, 1, 3, 4], "not valid itself")
    assert kinds(answers) == [PermanentError, None, Refused, RetryableError, PermanentError]
    assert str(answers.whole()[4]) == "not valid itself"


def test_an_error_is_told_by_the_first_row_that_fits_and_not_in_its_own_words(where: str) -> None:
    error = translated(ConnectionResetError("hunter2"), TABLE, where)
    assert (type(error), str(error)) == (DestinationUnavailable, f"{where}: the connection broke")
    assert type(translated(OSError("hunter2"), TABLE, where)) is RetryableError


def test_a_bug_is_logged_with_its_place_and_without_its_words_and_once_for_each_kind(
    where: str, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(kind: type[Exception]) -> None:
        raise kind(PAYLOAD)

    with caplog.at_level(logging.ERROR, "pgoutbox"):
        for kind in (KeyError, KeyError, TypeError, TypeError):
            with pytest.raises(kind) as caught:
                fail(kind)
            assert str(translated(caught.value, TABLE, where)) == f"{where}: the client failed"
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert f"{where}: unexpected KeyError" in caplog.text
    assert "in fail" in caplog.text
    assert PAYLOAD not in caplog.text


def test_what_no_row_fits_is_not_hidden(where: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        translated(KeyboardInterrupt(), TABLE, where)
