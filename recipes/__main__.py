"""`python -m recipes ls|show|validate|plan`: lists, prints, checks recipes and prints a run's commands."""

from __future__ import annotations

import argparse
import shlex
import sys

from recipes.controls import IMAGE_CONTROLS, PRIORS_OF
from recipes.errors import run_command
from recipes.load import ROOT, dump_recipe, find_recipe, load_recipe, shipped
from recipes.schema import Recipe


def main() -> int:
    """Dispatches on the subcommand."""
    parser = argparse.ArgumentParser(prog="python -m recipes", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("ls", help="list the shipped recipes")
    for name, text in (
        ("show", "print a recipe with every key written out"),
        ("validate", "check a recipe and its overrides"),
        ("plan", "print the commands from release to table row"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("recipe", help="a YAML file or the name of a shipped recipe")
        command.add_argument("overrides", nargs="*", metavar="section.key=value")
    arguments = parser.parse_args()
    if arguments.command == "ls":
        for name in shipped():
            print(f"{name:<44} {_headline(name)}")
        print("next: python -m recipes show NAME")
        return 0
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    if arguments.command == "show":
        print(_header(arguments.recipe) + dump_recipe(recipe), end="")
    elif arguments.command == "validate":
        print(f"{arguments.recipe}: valid (recipe {recipe.name})")
        print(f"next: python -m recipes plan {arguments.recipe}")
    else:
        print("\n".join(plan(arguments.recipe, arguments.overrides, recipe)))
    return 0


def plan(name: str, overrides: list[str], recipe: Recipe) -> list[str]:
    """The commands of a run, in order."""
    reader = _reader(name)
    extra = "".join(f" {shlex.quote(override)}" for override in overrides)
    run = f"runs/{recipe.name}"
    predictions = f"runs/predictions/{recipe.name}"
    data = recipe.data.dataset
    model = recipe.model.checkpoint
    priors = PRIORS_OF.get(reader, ())
    prepare = [
        f"python -m benchmarks prepare {reader} RELEASE --out {data}",
        f"python -m benchmarks validate {data}",
    ]
    controls = [f"python -m infer --control {each} --data {data} --out {predictions}-{each}" for each in priors]
    if recipe.model.family == "chat":
        infer = f"python -m infer {model} --engine openai --recipe {name}{extra} --data {data}"
        return [
            *prepare,
            f"{infer} --split test --out {predictions}",
            *controls,
            *(f"{infer} --control {each} --out {predictions}-{each}" for each in IMAGE_CONTROLS),
            f"python -m eval {predictions} {predictions}-*",
        ]
    return [
        *prepare,
        f"accelerate launch --config_file recipes/accelerate/gpu1.yaml -m train {name}{extra}",
        f"python -m infer {run} --data {data} --split test --out {predictions}",
        f"python -m infer {model} --recipe {name}{extra} --data {data} --out {predictions}-base   # before tuning",
        *controls,
        *(
            f"python -m infer {run} --control {each} --data {data} --out {predictions}-{each}"
            for each in IMAGE_CONTROLS
        ),
        f"python -m eval {predictions} {predictions}-* --html {run}/report.html",
    ]


def _reader(name: str) -> str:
    """The reader of a recipe's data: for a shipped one its folder names the benchmark, other data are generic."""
    folder = find_recipe(name).resolve().parent
    if folder.parent != ROOT.resolve():
        return "generic"
    return "scintiground" if folder.name in ("demo", "minority") else folder.name


def _headline(name: str) -> str:
    first = (ROOT / f"{name}.yaml").read_text(encoding="utf-8").splitlines()[0]
    return first.removeprefix("# ")


def _header(name: str) -> str:
    """The comment at the top of the file: hardware, time, result and the source of the values."""
    lines = find_recipe(name).read_text(encoding="utf-8").splitlines(keepends=True)
    count = next((number for number, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return "".join(lines[:count])


if __name__ == "__main__":
    sys.exit(run_command(main))
