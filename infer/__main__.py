"""`python -m infer RUN_OR_MODEL [MORE ...] --data DATASET --split test`: predicts a split.

Also under `accelerate launch -m infer ...` with several processes. The same command continues an
interrupted run. Several runs are predicted one after the other, each to a folder of its own name below
--out; adapters on one base take turns on it, so that it is loaded once. Other uses:

  python -m infer gpt-4o --engine openai --recipe sgmri/chat_zero_shot --data DATASET   a model on a server
  python -m infer RUN_OR_MODEL --image A.png --image B.png --question "..."   one question, boxes drawn
  python -m infer --control majority --data DATASET                           a control without a model
  python -m infer export PREDICTIONS --out PLACE                              official submission files
  python -m infer import PLACE --data DATASET --name NAME --out PREDICTIONS   predictions made by others
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infer import server_options
from recipes.controls import CONTROLS, PRIOR_CONTROLS
from recipes.errors import UserError, run_command

if TYPE_CHECKING:
    from recipes.schema import Recipe

TWO_VIEWS = ("ANT", "POST")
# What sets it apart from a path: `runs/lr=2` has a slash before the equals sign.
OVERRIDE = re.compile(r"[\w.]+=")


def main() -> int:
    """Dispatches on the first word."""
    words = sys.argv[1:]
    if words[:1] == ["export"]:
        return _export(words[1:])
    if words[:1] == ["import"]:
        return _import(words[1:])
    arguments = _parser().parse_intermixed_args(words)
    arguments.overrides = [word for word in arguments.words if OVERRIDE.match(word)]
    arguments.weights = [word for word in arguments.words if not OVERRIDE.match(word)]
    server_options.check(arguments)
    return _ask(arguments) if arguments.image else _predict(arguments)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m infer", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "words",
        nargs="*",
        metavar="RUN_OR_MODEL | section.key=value",
        help="run folders, model folders or hub names; overrides such as decoding.batch_size=4 hold for all of them",
    )
    parser.add_argument("--recipe", help="recipe, if there is none beside the weights or another is wanted")
    parser.add_argument("--data", type=Path, help="prepared dataset")
    parser.add_argument("--split", default="test", choices=("train", "val", "test"))
    parser.add_argument(
        "--out",
        type=Path,
        help="prediction folder (default: runs/predictions/NAME-DATASET-SPLIT); of several runs: the folder of theirs",
    )
    parser.add_argument(
        "--control",
        choices=CONTROLS,
        help="predict as a control; the first four learn from the train split and need no weights",
    )
    parser.add_argument("--name", help="name in tables (default: the run's or the control's)")
    parser.add_argument("--limit", type=int, metavar="N", help="only the first N records; scores are then partial")
    parser.add_argument(
        "--allow-encoder-mismatch",
        action="store_true",
        help="accept another prompt, image size or codec than trained with",
    )
    parser.add_argument(
        "--retry-errors", action="store_true", help="predict the records again whose rows hold an error"
    )
    server_options.add(parser)
    one = parser.add_argument_group("one question")
    one.add_argument("--image", type=Path, action="append", default=[], help="image file; repeat in the model's order")
    one.add_argument(
        "--view",
        action="append",
        default=[],
        help="view per image; by default the canvas's order, or ANT, POST for two images and a ScintiGround codec",
    )
    one.add_argument(
        "--frame",
        type=int,
        action="append",
        default=[],
        help="slice number per image; by default 1, 2, ... for an SGMRI codec",
    )
    one.add_argument("--question")
    one.add_argument("--task", default="vqa", help="task as the codec knows it (default: vqa)")
    one.add_argument("--draw", type=Path, default=Path("answer.png"), help="picture to write (default: answer.png)")
    return parser


def _predict(arguments: argparse.Namespace) -> int:
    from infer.run import Request, run_all

    _check(arguments)
    served = arguments.engine == "openai"
    key = os.environ.get("OPENAI_API_KEY") or None
    weights: list[str | None] = list(arguments.weights) or [None]
    requests = [
        Request(
            weights=None if served else each,
            data=arguments.data,
            split=arguments.split,
            out=_out(arguments, each),
            recipe=arguments.recipe,
            overrides=arguments.overrides,
            control=arguments.control,
            name=arguments.name,
            limit=arguments.limit,
            allow_mismatch=arguments.allow_encoder_mismatch,
            endpoint=server_options.endpoint(arguments, each, key) if served and each is not None else None,
            threads=server_options.threads(arguments),
            retry_errors=arguments.retry_errors,
        )
        for each in weights
    ]
    folders = run_all(requests)
    from models.processes import process_state

    if process_state().is_main_process:
        for folder in folders:
            for line in server_options.outcome(folder) if served else ():
                print(line)
            print(f"predictions: {folder}")
        print(f"next: python -m eval {' '.join(map(str, folders))} --html report.html")
    return 0


def _check(arguments: argparse.Namespace) -> None:
    """Refuses options that do not go together."""
    prior = arguments.control in PRIOR_CONTROLS
    if arguments.data is None:
        raise UserError("--data is missing", fix="give a prepared dataset, or --image and --question")
    if not arguments.weights and not prior:
        raise UserError("no weights given", fix="name a run or model folder, or --control majority or prompt_only")
    if arguments.weights and prior:
        raise UserError(f"control {arguments.control} uses no weights", fix=f"drop {' '.join(arguments.weights)}")
    if len(arguments.weights) > 1 and arguments.name is not None:
        raise UserError(
            f"--name {arguments.name} cannot name {len(arguments.weights)} runs",
            fix="drop it: each run keeps its own name; or predict them one by one",
        )
    if arguments.limit is not None and arguments.limit < 1:
        raise UserError(f"--limit {arguments.limit} is not positive", fix="give 1 or more")


def _out(arguments: argparse.Namespace, weights: str | None) -> Path:
    from infer.run import run_name

    run = run_name(weights) if weights is not None else None
    if arguments.out is None:
        words = (run, arguments.control, arguments.data.resolve().name, arguments.split)
        return Path("runs/predictions") / "-".join(word for word in words if word)
    out: Path = arguments.out
    return out / run if run is not None and len(arguments.weights) > 1 else out


def _ask(arguments: argparse.Namespace) -> int:
    from infer.ask import ask, check_task
    from infer.load import Loader, describe

    if arguments.data is not None or arguments.control is not None:
        raise UserError("--image asks one question, --data and --control predict a split", fix="drop one of the two")
    if not arguments.weights or not (arguments.question or "").strip() or not arguments.task.strip():
        raise UserError("one question needs weights, --image, --question and a task", fix="add what is missing")
    if len(arguments.weights) > 1:
        raise UserError(f"one question goes to one run, not to {len(arguments.weights)}", fix="name one run")
    if any(frame < 1 for frame in arguments.frame):
        raise UserError("slices are numbered from 1", where="--frame", fix="count from 1")
    described = describe(
        arguments.weights[0],
        recipe_path=arguments.recipe,
        overrides=arguments.overrides,
        allow_mismatch=arguments.allow_encoder_mismatch,
    )
    check_task(described.encoder.codec, arguments.task)
    views = arguments.view or _guessed_views(described.recipe, len(arguments.image))
    frames = arguments.frame or _guessed_frames(described.recipe, len(arguments.image))
    system = Loader().load(described)
    row, picture = ask(system, arguments.image, arguments.question, task=arguments.task, views=views, frames=frames)
    print(row.text if row.text is not None else f"failed: {row.error}")
    if row.invalid:
        print(f"not a valid answer: {row.invalid}")
    if row.answer:
        for box in row.answer.boxes:
            place = views[box.image] if views else f"frame {frames[box.image]}" if frames else box.image
            print(f"  {place}: {[round(v, 1) for v in box.xyxy]} {box.label or ''}")
    try:
        picture.save(arguments.draw)
    except (OSError, ValueError) as error:
        raise UserError(
            f"the picture cannot be written: {error}", where=f"--draw {arguments.draw}", fix="name a .png file"
        ) from error
    print(f"picture: {arguments.draw}")
    return 0 if row.error is None else 1


def _guessed_views(recipe: Recipe, count: int) -> tuple[str, ...]:
    """Views for images given without `--view`: none, but for a canvas or a codec that needs them."""
    order: tuple[str, ...] = ()
    reason = ""
    if recipe.canvas is not None and recipe.canvas.order:
        order, reason = recipe.canvas.order, "the canvas of this recipe"
    elif recipe.codec.startswith("scintiground"):
        order, reason = TWO_VIEWS, f"codec {recipe.codec}"
    if not order:
        return ()
    if count != len(order):
        raise UserError(
            f"{reason} needs the view of each image; views are guessed for {len(order)} images only, not for {count}",
            where="--view",
            fix=f"give --view {' or --view '.join(order)} once per --image, in the same order",
        )
    print(f"views: {', '.join(order)} (guessed from the number of images; --view names others)")
    return order


def _guessed_frames(recipe: Recipe, count: int) -> list[int]:
    """Slice numbers for images given without `--frame`: none, but for a codec that needs them."""
    if not recipe.codec.startswith("sgmri"):
        return []
    print(f"frames: 1 to {count} in the order of --image (--frame names others)")
    return list(range(1, count + 1))


def _export(words: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m infer export", description="Writes predictions in the benchmark's official form."
    )
    parser.add_argument("predictions", type=Path)
    parser.add_argument("--data", type=Path, help="dataset (default: the manifest's)")
    parser.add_argument(
        "--out", type=Path, required=True, help="file (ScintiGround) or folder (SGMRI-VQA: a file per level) to write"
    )
    arguments = parser.parse_args(words)

    from benchmarks.predictions import read_manifest
    from infer.exchange import export_predictions

    data = arguments.data or Path(read_manifest(arguments.predictions).dataset)
    count, files = export_predictions(arguments.predictions, data, arguments.out)
    print(f"{count:,} predictions: {', '.join(map(str, files))}")
    print(f"next: score the file with the benchmark's own program, or here: python -m eval {arguments.predictions}")
    return 0


def _import(words: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m infer import", description="Reads predictions made by others.")
    parser.add_argument(
        "source",
        type=Path,
        metavar="PLACE",
        help='lines {"task_id": ..., "prediction": ...} (ScintiGround); an inference file of a level, or a folder with '
        "those of one model (SGMRI-VQA)",
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--split", default="test", choices=("train", "val", "test"))
    parser.add_argument("--name", required=True, help="name in tables")
    parser.add_argument(
        "--codec", help="how the texts are read (default: scintiground_json or sgmri_text, as the dataset has it)"
    )
    parser.add_argument("--out", type=Path, required=True, help="prediction folder to write")
    a = parser.parse_args(words)
    if not a.source.exists():
        raise UserError(f"{a.source} does not exist", fix="check the path")

    from infer.exchange import import_predictions

    done = import_predictions(a.source, a.data, a.split, a.out, name=a.name, codec=a.codec)
    for note in done.notes:
        print(f"note: {note}")
    print(f"predictions: {done.folder}")
    print(f"next: python -m eval {done.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
