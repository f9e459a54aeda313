"""The table of pitfalls names tests that exist, for every entry."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LATER = ("with the vLLM engine",)
ENTRIES = list(range(1, 46))


def rows():
    """Entry -> text of its last column."""
    lines = (ROOT / "tests/PITFALLS.md").read_text().splitlines()
    cells = [line.strip("|").split("|") for line in lines if re.match(r"\| \d+ \|", line)]
    return [(int(entry), tests) for entry, _, tests in cells]


def named(text):
    """The tests that a cell names, as (file, function)."""
    return re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", text)


def test_every_entry_has_a_row():
    assert [entry for entry, _ in rows()] == ENTRIES


@pytest.mark.parametrize(("entry", "tests"), rows(), ids=lambda value: str(value) if isinstance(value, int) else "")
def test_every_named_test_exists(entry, tests):
    assert named(tests) or any(mark in tests for mark in LATER), f"entry {entry} has no test"
    assert len(named(tests)) == tests.count("::")
    for file, function in named(tests):
        tree = ast.parse((ROOT / file).read_text())
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in functions, f"entry {entry}: {file} has no {function}"
