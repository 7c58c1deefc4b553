from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pgoutbox._version import __version__
from pgoutbox.database.migrations import available

ROOT = Path(__file__).parents[2]
METADATA = f"pgoutbox-{__version__}.dist-info"
TOP_LEVEL = {"pgoutbox", "pgoutbox_operator", METADATA}
LIST_MIGRATIONS = """
import sys
sys.path.insert(0, sys.argv[1])
from pgoutbox.database import migrations
assert migrations.__file__.startswith(sys.argv[1]), migrations.__file__
print(*(migration.title for migration in migrations.available()))
"""


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built without isolation, so nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="session")
def unpacked(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def test_a_wheel_installs_only_what_belongs_to_us(unpacked: Path) -> None:
    assert {path.name for path in unpacked.iterdir()} == TOP_LEVEL


def test_a_wheel_holds_the_migrations_as_they_are_in_the_repository(unpacked: Path) -> None:
    for migration in available():
        name = f"{migration.title}.sql"
        packed = unpacked / "pgoutbox" / "_migrations" / name
        assert packed.read_bytes() == (ROOT / "migrations" / name).read_bytes()


@pytest.mark.parametrize("packed", [False, True])
def test_an_installed_wheel_finds_its_own_migrations(
    wheel: Path, unpacked: Path, *, packed: bool
) -> None:
    listed = subprocess.run(
        [sys.executable, "-c", LIST_MIGRATIONS, str(wheel if packed else unpacked)],
        cwd=unpacked.parent,
        check=True,
        capture_output=True,
        text=True,
    )
    assert listed.stdout.split() == [migration.title for migration in available()]


def test_a_wheel_tells_type_checkers_that_it_is_typed(unpacked: Path) -> None:
    assert (unpacked / "pgoutbox" / "py.typed").is_file()


def test_a_wheel_offers_the_command(unpacked: Path) -> None:
    scripts = (unpacked / METADATA / "entry_points.txt").read_text(encoding="utf-8")
    assert "pgoutbox = pgoutbox.cli:main" in scripts.splitlines()


def test_a_producer_installs_psycopg_and_nothing_else(unpacked: Path) -> None:
    lines = (unpacked / METADATA / "METADATA").read_text(encoding="utf-8").splitlines()
    required = [line for line in lines if line.startswith("Requires-Dist:") and ";" not in line]
    assert [line.split()[1].split(">")[0] for line in required] == ["psycopg"]
