"""What the README tells a newcomer to type exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from recipes.load import load_recipe

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
MODULES = sorted(
    set(re.findall(r"python -m (\w+)", README)) & {"benchmarks", "recipes", "models", "train", "infer", "eval", "perf"}
)


@pytest.mark.parametrize("module", MODULES)
def test_commands_have_help(module):
    result = subprocess.run(
        [sys.executable, "-m", module, "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    assert "usage" in result.stdout


def test_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    for name in set(re.findall(r"make ([a-z-]+)", README)):
        assert name in targets


def test_recipes_and_files_exist():
    for name in set(re.findall(r"`((?:demo|scintiground)/\w+)`", README)):
        assert load_recipe(name).name
    for path in set(re.findall(r"\]\((docs/[^)]+)\)", README)) | set(
        re.findall(r"recipes/(?:accelerate|slurm)/[\w.]+", README)
    ):
        assert (ROOT / path).is_file(), path


def test_messages_that_the_readme_quotes_are_those_of_the_code():
    """Each quoted message of "When something goes wrong", numbers aside, is in the source of `train` or `models`."""
    table = README.split("**When something goes wrong**")[1].split("\n- **")[0]
    column = "\n".join(row.split("|")[2] for row in table.splitlines() if row.startswith("|"))
    files = [path for package in ("train", "models") for path in (ROOT / package).glob("*.py")]
    source = " ".join(path.read_text(encoding="utf-8") for path in files)
    quotes = re.findall(r"`([^`]+)`", column)
    assert len(quotes) > 6
    for quote in quotes:
        words = max(re.split(r"checkpoint-N|\bN(?: MiB)?\b|\bnan\b", quote), key=len).strip()
        assert words in source, quote


def test_own_data_example_is_read(tmp_path):
    """The CSV of "Your own data in five steps" passes `prepare generic` as printed."""
    from PIL import Image

    rows = re.search(r"```\n(images,view.*?)```", README, flags=re.DOTALL)
    assert rows is not None
    (tmp_path / "rows.csv").write_text(rows[1])
    for name in ("p1_ant.png", "p1_post.png"):
        Image.new("L", (64, 128)).save(tmp_path / name)
    line = next(line for line in re.findall(r"`(python -m benchmarks prepare generic [^`]*)`", README))
    words = shlex.split(line)[1:]
    result = subprocess.run(
        [sys.executable, *words],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr
