"""`accelerate launch -m train RECIPE [section.key=value ...]`: trains a recipe.

Plain `python -m train` works for one device. The run goes to `runs/NAME` unless `--out` says
otherwise; the same command continues an interrupted run. Other use:

  python -m train merge RUN --out FOLDER    a LoRA run as one plain checkpoint, checked (`merge --help`)
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

from recipes.errors import run_command
from recipes.load import load_recipe

MERGE = """Merges a LoRA run into a plain transformers checkpoint.

The sum of base and adapter is formed in float32 and rounded once, to --dtype. The base is the one that the
adapter was trained on: of a QLoRA run (model.quantization: nf4) the 4-bit weights, dequantised to the
recipe's model.dtype. Full weights from the checkpoint would be another base, and are not used.

The folder is loaded back and compared with the unmerged model on a few records, both computing in float32:
greedy texts, and logits to 1e-4 (float32), 1e-2 (float16) or 5e-2 (bfloat16) of the largest. It also fails
where rounding hides more than half of what the adapter changes. --out appears only if all of it passes."""


def main() -> int:
    """Dispatches on the first word."""
    words = sys.argv[1:]
    return _merge(words[1:]) if words[:1] == ["merge"] else _train(words)


def _train(words: list[str]) -> int:
    """Parses, trains, prints where the result is and the next command."""
    parser = argparse.ArgumentParser(
        prog="python -m train", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("recipe", help="a YAML file or the name of a shipped recipe (`python -m recipes ls`)")
    parser.add_argument(
        "overrides", nargs="*", metavar="section.key=value", help="for example train.learning_rate=1e-4"
    )
    parser.add_argument("--out", type=Path, help="run folder (default: runs/NAME)")
    parser.add_argument(
        "--fresh",
        action="store_true",
        help="start anew: the run in the folder is renamed to FOLDER.old-1, nothing is deleted",
    )
    parser.add_argument(
        "--estimate", action="store_true", help="only say what memory and operations the run takes; loads no weights"
    )
    arguments = parser.parse_intermixed_args(words)
    recipe = load_recipe(arguments.recipe, arguments.overrides)
    out = arguments.out or Path("runs") / recipe.name

    from models.processes import process_state
    from train.run import run

    # What imports leave is no garbage: else the Trainer's first collection walks through all of it, a third of a second.
    gc.freeze()
    main_process = process_state().is_main_process

    def say(line: str) -> None:
        if main_process:
            print(line, flush=True)

    if arguments.estimate:
        from train.estimate import estimate_recipe

        for line in estimate_recipe(recipe).lines():
            say(line)
        say(f"next: the same command without --estimate; the run goes to {out}")
        return 0
    folder = run(recipe, out, say, fresh=arguments.fresh)
    say(f"\nsaved {folder} (weights, processor, recipe, model card); curves: tensorboard --logdir {out}")
    say(f"next: python -m infer {folder} --data {recipe.data.dataset} --split test")
    return 0


def _merge(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m train merge", description=MERGE, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", help="run or model folder of a LoRA or QLoRA run")
    parser.add_argument(
        "overrides",
        nargs="*",
        metavar="section.key=value",
        help="for example model.checkpoint=FOLDER, if the base moved",
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write; must be new or empty")
    parser.add_argument(
        "--dtype",
        choices=("bfloat16", "float32", "float16"),
        help="type of the weights (default: the recipe's model.dtype)",
    )
    parser.add_argument("--data", type=Path, help="dataset to check on (default: the recipe's, its validation split)")
    arguments = parser.parse_intermixed_args(words)

    from train.merge import Request, describe_check, merge

    check = merge(
        Request(
            run=arguments.run,
            out=arguments.out,
            dtype=arguments.dtype,
            data=arguments.data,
            overrides=arguments.overrides,
        )
    )
    print(f"checked on {len(check.records)} records: {describe_check(check)}")
    print(f"merged model: {arguments.out} (weights, processor, recipe, manifest, model card)")
    print(f"next: python -m infer {arguments.out} --data {check.dataset} --split test")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
