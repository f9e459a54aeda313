"""The layout: what imports what, what stays light, that shipped recipes are whole."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from collators.codecs.registry import get_codec
from collators.prompts import load_template
from recipes.load import ROOT as RECIPES
from recipes.load import load_recipe, shipped

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "transformers", "peft", "accelerate", "datasets", "scipy", "nltk")
# Package -> packages it may import besides itself (design: imports go one way).
ALLOWED = {
    "recipes": set(),
    "benchmarks": {"recipes"},
    "collators": {"recipes", "benchmarks"},
    "models": {"recipes", "benchmarks", "collators"},
    "infer": {"recipes", "benchmarks", "collators", "models"},
    "train": {"recipes", "benchmarks", "collators", "models", "infer", "eval"},
    "eval": {"recipes", "benchmarks", "collators.codecs"},
    "perf": {"recipes", "benchmarks", "collators", "models", "infer", "train", "eval"},
}
LIGHT = ("benchmarks", "collators/codecs", "recipes", "eval")


def sources(folder):
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    """Names of the modules that a file imports, inside functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def heavy_after(code):
    """Which heavy packages a fresh Python holds after running `code`."""
    check = f"{code}\nimport sys\nprint(*(name for name in {HEAVY} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("folder", LIGHT)
def test_importing_every_module_leaves_the_heavy_packages_out(folder):
    names = [module_name(path) for path in sources(folder)]
    assert len(names) > 3
    assert heavy_after("\n".join(f"import {name}" for name in names)) == []


@pytest.mark.parametrize("name", ["torch", "scipy"])
def test_that_check_can_fail(name):
    assert name in heavy_after(f"import benchmarks.schema, {name}")


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_imports_go_one_way(package):
    allowed = ALLOWED[package] | {package}
    for path in sources(package):
        for name in imported(path):
            if name.split(".")[0] in ALLOWED:
                assert any(name == each or name.startswith(f"{each}.") for each in allowed), f"{path} imports {name}"


def test_codecs_do_not_reach_the_tensor_modules_of_their_package():
    for path in sources("collators/codecs"):
        for name in imported(path):
            assert not name.startswith("collators.") or name.startswith("collators.codecs."), f"{path} imports {name}"
            assert name.split(".")[0] not in HEAVY, f"{path} imports {name}"


@pytest.mark.parametrize("package", sorted(ALLOWED))
def test_no_module_is_longer_than_400_lines_and_each_says_what_it_is(package):
    for path in sources(package):
        text = path.read_text(encoding="utf-8")
        assert text.count("\n") <= 400, path
        assert ast.get_docstring(ast.parse(text)), path


def test_package_files_only_hold_a_docstring():
    for package in ALLOWED:
        for path in (ROOT / package).rglob("__init__.py"):
            body = ast.parse(path.read_text(encoding="utf-8")).body
            assert len(body) <= 2, path
            assert all(isinstance(node, ast.Expr | ast.Assign | ast.ImportFrom) for node in body), path


@pytest.mark.parametrize("name", shipped())
def test_a_shipped_recipe_loads_with_its_codec_and_prompt_and_says_how_to_run_it(name):
    recipe = load_recipe(name)
    assert get_codec(recipe.codec, recipe.canvas).name == recipe.codec
    assert load_template(recipe.prompt).user
    lines = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    header = lines[: next(number for number, line in enumerate(lines) if not line.startswith("#"))]
    assert len(header) >= 3
    assert any(word in "\n".join(header) for word in (f"-m train {name}", f"--recipe {name}", "make demo")), header
