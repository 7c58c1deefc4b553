"""What Pub/Sub is known to refuse is refused before: limits, and URLs that make no sense."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from pgoutbox.brokers.pubsub.publisher import _requests, check_limits, open_pubsub
from pgoutbox.destinations.registry import open_publisher
from pgoutbox.errors import InvalidDestination, PermanentError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.wire.template import Template

OPTIONS = PublisherOptions(destination="google", publish_timeout=4.0)


def parts(sizes: list[int], most: int) -> list[int]:
    return [len(part) for part in _requests(dict(enumerate(sizes)), most)]


def test_requests_are_split_by_count_and_by_bytes() -> None:
    assert parts([10] * 2500, 10**7) == [1000, 1000, 500]
    assert parts([4] * 5, 10) == [2, 2, 1]
    assert parts([4], 10) == [1]
    assert parts([10] * 3, 10) == [1, 1, 1]


@pytest.mark.parametrize(
    ("headers", "key", "words"),
    [
        ({str(i): "" for i in range(101)}, "", "101 attributes"),
        ({"n" * 257: ""}, "", "more than 256 bytes"),
        ({"é" * 129: ""}, "", "more than 256 bytes"),
        ({"googclient": ""}, "", "begins with goog"),
        ({"": "x"}, "", "name is empty"),
        ({"n": "é" * 513}, "", "'n' has more than 1024 bytes"),
        ({}, "k" * 1025, "ordering key has more than 1024 bytes"),
    ],
)
def test_what_does_not_fit_is_refused_with_words(
    headers: dict[str, str], key: str, words: str
) -> None:
    with pytest.raises(PermanentError, match=words):
        check_limits(headers, key)


def test_what_just_fits_is_taken() -> None:
    full = {str(i): "" for i in range(98)} | {"n" * 256: "", "v": "é" * 512}
    check_limits(full, "é" * 512)


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("pubsub://", "names a project"),
        ("pubsub:///topic", "names a project"),
        ("pubsub://user:hunter2@project/topic", "names a project"),
        ("pubsub://project/topic#hunter2", "names a project"),
        ("pubsub://[::1/topic", "names a project"),
        ("pubsub://project/ab", "not one that Pub/Sub can have"),
        ("pubsub://project/9lives", "not one that Pub/Sub can have"),
        ("pubsub://project/google-topic", "not one that Pub/Sub can have"),
        ("pubsub://project/google-{event_type}", "not one that Pub/Sub can have"),
        ("pubsub://project/two/parts", "not one that Pub/Sub can have"),
        ("pubsub://project/{hunter}", "knows no field {hunter}"),
        ("pubsub://project/topic?emulator=", "emulator is not a host"),
        ("pubsub://project/topic?endpoint=https://host", "endpoint is not a host"),
        ("pubsub://project/topic?emulator=a:1&endpoint=b:2", "exclude each other"),
        ("pubsub://project/topic?batch=1", "'batch' is no option"),
    ],
)
async def test_a_url_that_makes_no_sense_is_refused_without_repeating_it(
    url: str, problem: str
) -> None:
    with pytest.raises(InvalidDestination, match=problem) as caught:
        await open_pubsub(url, options=OPTIONS)
    assert "hunter2" not in str(caught.value)


async def test_a_topic_both_in_the_url_and_in_the_settings_is_refused() -> None:
    options = replace(OPTIONS, topic=Template("other"))
    with pytest.raises(InvalidDestination, match="in the URL and in the settings"):
        await open_pubsub("pubsub://project/topic", options=options)


def test_googles_library_is_imported_when_the_first_url_is_opened_and_not_before() -> None:
    code = "import sys, pgoutbox.brokers.pubsub; sys.exit('google.pubsub_v1' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


async def test_without_googles_library_people_are_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("publisher", "client"):
        monkeypatch.delitem(sys.modules, f"pgoutbox.brokers.pubsub.{name}")
    monkeypatch.setitem(sys.modules, "google.pubsub_v1", None)
    with pytest.raises(InvalidDestination, match=r"needs the package google.*pgoutbox\[pubsub\]"):
        await open_publisher("pubsub://project/topic", options=OPTIONS)
