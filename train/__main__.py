"""`accelerate launch -m train RECIPE [section.key=value ...]`: trains a recipe.

Plain `python -m train` works for one device. The run goes to `runs/NAME` unless `--out` says
otherwise; the same command continues an interrupted run.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from recipes.errors import run_command
from recipes.load import load_recipe


def main() -> int:
    """Parses, trains, prints where the result is and the next command."""
    parser = argparse.ArgumentParser(
        prog="python -m train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe", help="a YAML file or the name of a shipped recipe (`python -m recipes ls`)")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="for example train.learning_rate=1e-4"
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME)")
    arguments = parser.parse_intermixed_args()
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    out = arguments.out or Path("runs") / recipe.name

    from models.processes import process_state
    from train.run import run

    main_process = process_state().is_main_process

    def say(line: str) -> None:
        if main_process:
            print(line, flush=True)

    folder = run(recipe, out, say)
    say(f"\nsaved {folder} (weights, processor, recipe, model card); curves: tensorboard --logdir {out}")
    say(f"next: python -m infer {folder} --data {recipe.data.dataset} --split test")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
