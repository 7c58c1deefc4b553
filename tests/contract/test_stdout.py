from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
from io import FileIO
from typing import TYPE_CHECKING

import pytest

from pgoutbox.brokers.stdout import StdoutPublisher, open_stdout
from pgoutbox.errors import DestinationUnavailable, InvalidDestination, RetryableError
from pgoutbox.publisher import PublisherOptions
from pgoutbox.testing import Arrivals, PublisherContract, make_message

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

OPTIONS = PublisherOptions(destination="screen")


def payload(line: bytes) -> bytes:
    encoded = json.loads(line).get("payload_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return line[line.index(b'"payload": ') + len('"payload": ') : -1]


@pytest.mark.usefixtures("capfdbinary")
class TestStdout(PublisherContract):
    @pytest.fixture
    async def publisher(self) -> AsyncIterator[StdoutPublisher]:
        publisher = await open_stdout("stdout://", options=OPTIONS)
        yield publisher
        await publisher.close()

    @pytest.fixture
    def arrivals(self, capfdbinary: pytest.CaptureFixture[bytes]) -> Arrivals:
        return lambda: [payload(line) for line in capfdbinary.readouterr().out.splitlines()]

    @pytest.fixture
    async def another(self) -> StdoutPublisher:
        return await open_stdout("stdout://", options=OPTIONS)

    @pytest.fixture
    async def unreachable(self, pipe: tuple[FileIO, FileIO]) -> StdoutPublisher:
        pipe[0].close()
        return StdoutPublisher(pipe[1].fileno())


@pytest.fixture
def pipe() -> Iterator[tuple[FileIO, FileIO]]:
    read, write = os.pipe()
    with FileIO(read, "rb") as reader, FileIO(write, "wb") as writer:
        yield reader, writer


async def test_a_closed_pipe_makes_the_destination_unavailable(pipe: tuple[FileIO, FileIO]) -> None:
    pipe[0].close()
    publisher = StdoutPublisher(pipe[1].fileno())
    with pytest.raises(DestinationUnavailable, match="the pipe is closed"):
        await publisher.publish_batch([make_message()])
    await publisher.close()


async def test_a_full_disk_behind_standard_output_is_worth_a_retry() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    publisher = StdoutPublisher(full)
    with pytest.raises(RetryableError, match="No space left on device"):
        await publisher.publish_batch([make_message()])
    await publisher.close()
    os.close(full)


async def test_a_reader_that_does_not_read_stops_neither_the_event_loop_nor_close(
    pipe: tuple[FileIO, FileIO],
) -> None:
    publisher = StdoutPublisher(pipe[1].fileno())
    stuck = asyncio.ensure_future(publisher.publish_batch([make_message(body=b"1" * 2**20)]))
    os.set_blocking(pipe[0].fileno(), False)
    while not pipe[0].read(1):  # noqa: ASYNC110 - a file descriptor has no event
        # The loop turns while the pipe fills.
        await asyncio.sleep(0)
    assert not stuck.done()
    stuck.cancel()
    async with asyncio.timeout(5):
        await publisher.close()
    assert any(thread.name == "pgoutbox-lines" for thread in threading.enumerate())
    pipe[0].close()


def test_a_process_whose_reader_has_stopped_reading_can_still_end() -> None:
    program = """
import asyncio
from pgoutbox.brokers.stdout import StdoutPublisher
from pgoutbox.testing import make_message

async def main():
    publisher = StdoutPublisher()
    try:
        async with asyncio.timeout(0.2):
            await publisher.publish_batch([make_message(body=b"1" * 2**20)])
    except TimeoutError:
        pass
    await publisher.close()

asyncio.run(main())
"""
    read, write = os.pipe()
    try:
        process = subprocess.Popen([sys.executable, "-c", program], stdout=write)
        assert process.wait(timeout=30) == 0
    finally:
        os.close(read)
        os.close(write)


async def test_stdout_takes_no_options() -> None:
    with pytest.raises(InvalidDestination, match="'fsync' is no option of stdout://; it takes"):
        await open_stdout("stdout://?fsync=1", options=OPTIONS)
