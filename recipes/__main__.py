"""`python -m recipes ls|show|validate|plan`: lists, prints, checks recipes and prints a run's commands."""

from __future__ import annotations

import argparse
import re
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
    """The commands of a run, in order; preparation, launch and prediction as the recipe's header says, if it does."""
    reader = _reader(name, recipe)
    extra = "".join(f" {shlex.quote(override)}" for override in overrides)
    run = f"runs/{recipe.name}"
    predictions = f"runs/predictions/{recipe.name}"
    data = recipe.data.dataset
    priors = [
        f"python -m infer --control {each} --data {data} --out {predictions}-{each}"
        for each in PRIORS_OF.get(reader, ())
    ]
    said = [re.sub(r"(--out|--data) data/\S+", rf"\1 {data}", line) for line in _said(name)]
    prepare = next(
        (line for line in said if "benchmarks prepare" in line),
        f"python -m benchmarks prepare {reader} RELEASE --out {data}",
    )
    score = f"python -m eval {predictions} {predictions}-* --html"
    untrained = next((line for line in said if f"--recipe {name}" in line), None)
    launch = next((line for line in said if f"-m train {name}" in line), None)
    if untrained is not None and launch is None:
        # A recipe for prediction only.
        asked = f"{untrained}{extra} --out {predictions}"
        return [prepare, f"python -m benchmarks validate {data}", asked, *priors, f"{score} {predictions}/report.html"]
    ask = next(
        (line for line in said if f"-m infer {run} " in line), f"python -m infer {run} --data {data} --split test"
    )
    launch = launch or f"accelerate launch --config_file recipes/accelerate/gpu1.yaml -m train {name}"
    return [
        prepare,
        f"python -m benchmarks validate {data}",
        f"{launch}{extra}",
        f"{ask} --out {predictions}",
        f"python -m infer {recipe.model.checkpoint} --recipe {name}{extra} --data {data} "
        f"--out {predictions}-base   # before tuning",
        *priors,
        *(f"{ask} --control {each} --out {predictions}-{each}" for each in IMAGE_CONTROLS),
        f"{score} {run}/report.html",
    ]


def _said(name: str) -> list[str]:
    """The commands in a recipe's header: its indented lines, continued ones joined."""
    lines = [line.removeprefix("#").rstrip() for line in _header(name).splitlines()]
    text = "\n".join(line.strip() for line in lines if line.startswith("   "))
    return text.replace("\\\n", "").splitlines()


def _reader(name: str, recipe: Recipe) -> str:
    """The reader of a recipe's data: for a shipped one its folder names the benchmark, other data are generic."""
    folder = find_recipe(name).resolve().parent
    if folder.parent != ROOT.resolve():
        return "generic"
    if folder.name in ("demo", "minority"):
        return "sgmri" if recipe.codec.startswith("sgmri") else "scintiground"
    return folder.name


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
