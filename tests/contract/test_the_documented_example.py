"""The publisher and its tests that docs/publishers.md shows, run as a reader would run them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "publishers.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)

LIBRARY = """
import asyncio

class LineBusy(Exception): ...
class NoDialTone(Exception): ...

class Line:
    def __init__(self, url, timeout): ...
    async def send(self, to, body):
        await asyncio.sleep(0)
    async def hang_up(self): ...
"""
CONFTEST = """
from types import SimpleNamespace
import pytest

@pytest.fixture
def fax_machine():
    return SimpleNamespace(url="fax://here")
"""
READS = """
import pytest
from example_url import read
from pgoutbox.errors import InvalidDestination
from pgoutbox.publisher import PublisherOptions

OPTIONS = PublisherOptions(destination="fax")

def test_a_url_is_read():
    assert read("fax://me:secret@host:7?paper=a5", OPTIONS) == ("host", 7, "a5")
    assert read("fax://host", OPTIONS) == ("host", None, "a4")

def test_a_url_that_is_wrong_is_refused_without_repeating_it():
    with pytest.raises(InvalidDestination) as caught:
        read("fax://me:sec/ret@host", OPTIONS)
    assert "ret" not in str(caught.value)
"""


def test_the_documented_publisher_passes_its_documented_tests(tmp_path: Path) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    publisher, reading, tests = (text for kind, text in blocks if kind == "python")
    (setting,) = (text for kind, text in blocks if "pytest" in text and kind == "toml")
    files = {
        "fax_library.py": LIBRARY,
        "conftest.py": CONFTEST,
        "example_fax.py": publisher,
        "example_url.py": reading,
        "test_fax.py": tests,
        "test_url.py": READS,
        "pyproject.toml": setting,
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "--strict-config"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stdout
    assert re.search(r"[2-9]\d passed", done.stdout), done.stdout
