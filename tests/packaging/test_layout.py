from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILE_LIMITS = {
    "worker": 300,
    "operator": 300,
    "monitoring": 300,
    "simulation": 300,
    "benchmarks": 300,
    "examples": 300,
    "tests": 400,
}
FUNCTION_LIMIT = 40


def python_files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """The name and the number of lines of each function, decorators not counted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1


@pytest.mark.parametrize("folder", FILE_LIMITS)
def test_no_file_is_longer_than_a_reader_can_hold(folder: str) -> None:
    lengths = {
        str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines())
        for path in python_files(folder)
    }
    assert {name: n for name, n in lengths.items() if n > FILE_LIMITS[folder]} == {}


@pytest.mark.parametrize("folder", FILE_LIMITS)
def test_no_function_is_longer_than_a_screen(folder: str) -> None:
    long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in python_files(folder)
        for name, lines in functions(path)
        if lines > FUNCTION_LIMIT
    }
    assert long == {}


def test_the_standard_librarys_operator_is_found_from_the_root_of_the_repository() -> None:
    program = (
        "import sys; from importlib.machinery import PathFinder; "
        "print(PathFinder.find_spec('operator', sys.path).origin)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert Path(found.stdout.strip()).parent == Path(sysconfig.get_path("stdlib"))


@pytest.mark.parametrize("folder", ["worker", "operator"])
def test_the_folders_that_hold_packages_are_no_packages(folder: str) -> None:
    assert not (ROOT / folder / "__init__.py").exists()
