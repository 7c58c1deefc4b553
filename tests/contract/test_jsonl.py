# ruff: noqa: ASYNC240 - a test may wait for the disk

from __future__ import annotations

import asyncio
import base64
import json
import os
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.jsonl import JsonlPublisher, open_jsonl
from pgoutbox.brokers.lines import LineSink
from pgoutbox.errors import DestinationUnavailable, InvalidDestination, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import Arrivals, PublisherContract, make_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

OPTIONS = PublisherOptions(destination="archive")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out with blank.jsonl"


@pytest.fixture
async def publisher(path: Path) -> AsyncIterator[JsonlPublisher]:
    publisher = await open_jsonl(path.as_uri().replace("file", "jsonl", 1), options=OPTIONS)
    yield publisher
    await publisher.close()


def payload(line: bytes) -> bytes:
    encoded = json.loads(line).get("payload_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return line[line.index(b'"payload": ') + len('"payload": ') : -1]


class TestJsonl(PublisherContract):
    @pytest.fixture(params=["", "?fsync=0"], ids=["fsync", "no fsync"])
    async def publisher(
        self, path: Path, request: pytest.FixtureRequest
    ) -> AsyncIterator[JsonlPublisher]:
        url = path.as_uri().replace("file", "jsonl", 1) + request.param
        publisher = await open_jsonl(url, options=OPTIONS)
        yield publisher
        await publisher.close()

    @pytest.fixture
    def arrivals(self, path: Path) -> Arrivals:
        return lambda: [payload(line) for line in path.read_bytes().splitlines()]

    @pytest.fixture
    async def another(self, path: Path) -> JsonlPublisher:
        return await open_jsonl(path.as_uri().replace("file", "jsonl", 1), options=OPTIONS)

    @pytest.fixture
    async def unreachable(self) -> JsonlPublisher:
        return await open_jsonl("jsonl:///dev/full", options=OPTIONS)


async def test_lines_are_appended_to_what_is_there(publisher: JsonlPublisher, path: Path) -> None:
    path.write_bytes(b"{}\n")
    await publisher.publish_batch([make_message(), make_message()])
    await publisher.publish_batch([make_message()])
    lines = path.read_bytes().splitlines()
    assert lines[0] == b"{}"
    assert len(lines) == 4


async def test_others_may_not_read_a_file_that_was_created(
    publisher: JsonlPublisher, path: Path
) -> None:
    await publisher.publish_batch([make_message()])
    assert path.stat().st_mode & 0o077 == 0


async def test_a_full_disk_is_worth_a_retry() -> None:
    publisher = await open_jsonl("jsonl:///dev/full", options=OPTIONS)
    with pytest.raises(RetryableError, match="could not be written: No space left on device"):
        await publisher.publish_batch([make_message()])
    await publisher.close()


async def test_a_piece_of_a_line_left_by_a_crash_does_not_spoil_the_next_line(path: Path) -> None:
    path.write_bytes(b'{"whole": 1}\n{"torn": ')
    publisher = await open_jsonl(f"jsonl://{str(path).replace(' ', '%20')}", options=OPTIONS)
    await publisher.publish_batch([make_message(body=b'"next"')])
    await publisher.close()
    lines = path.read_bytes().splitlines()
    assert lines[:2] == [b'{"whole": 1}', b'{"torn": ']
    assert json.loads(lines[2])["payload"] == "next"


def test_a_write_that_breaks_off_is_followed_by_a_line_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.jsonl"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT)
    sink = LineSink(fd)
    room = [5]

    def write(into: int, data: memoryview) -> int:
        if not room:
            raise OSError(28, "No space left on device")
        return real(into, data[: room.pop()])

    real = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space left"):
            sink.write(b'{"lost": 1}\n')
    sink.write(b'{"kept": 1}\n')
    os.close(fd)
    assert path.read_bytes() == b'{"los\n{"kept": 1}\n'


async def test_a_file_that_is_rotated_away_is_followed(
    publisher: JsonlPublisher, path: Path
) -> None:
    await publisher.publish_batch([make_message(body=b"1")])
    rotated = path.rename(path.with_suffix(".1"))
    await publisher.publish_batch([make_message(body=b"2")])
    assert [payload(line) for line in rotated.read_bytes().splitlines()] == [b"1"]
    assert [payload(line) for line in path.read_bytes().splitlines()] == [b"2"]


async def test_a_directory_that_vanishes_makes_the_destination_unavailable(tmp_path: Path) -> None:
    directory = tmp_path / "mounted"
    directory.mkdir()
    publisher = await open_jsonl(f"jsonl://{directory}/out.jsonl", options=OPTIONS)
    (directory / "out.jsonl").unlink()
    directory.rmdir()
    with pytest.raises(DestinationUnavailable, match="cannot be opened: No such file"):
        await publisher.publish_batch([make_message()])
    directory.mkdir()
    assert await publisher.publish_batch([make_message()]) == [None]
    await publisher.close()


async def test_concurrent_batches_never_share_a_line(publisher: JsonlPublisher, path: Path) -> None:
    batches = [[make_message(body=b"%d" % n) for _ in range(20)] for n in range(20)]
    await asyncio.gather(*(publisher.publish_batch(batch) for batch in batches))
    found = [payload(line) for line in path.read_bytes().splitlines()]
    assert found == [each.body for batch in batches for each in batch]


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("jsonl://relative/out.jsonl", "absolute path after three slashes"),
        ("jsonl://", "absolute path after three slashes"),
        ("jsonl:///no/such/directory/out.jsonl", "cannot be opened for appending: No such file"),
        ("jsonl:///tmp", "cannot be opened for appending: Is a directory"),
        ("jsonl:///tmp/out.jsonl?sync=1", "'sync' is no option"),
    ],
)
async def test_a_url_that_cannot_be_written_to_is_refused_at_start(url: str, problem: str) -> None:
    with pytest.raises(InvalidDestination, match=problem):
        await open_jsonl(url, options=OPTIONS)


async def test_a_pipe_is_refused_at_start_instead_of_waiting_for_its_reader(
    tmp_path: Path,
) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidDestination, match="it is a pipe; redirect"):
        await open_jsonl(f"jsonl://{tmp_path}/fifo", options=OPTIONS)
