"""The options of `python -m infer` for models on a server: declared, checked, and what a run came to."""

from __future__ import annotations

import argparse
from pathlib import Path

from benchmarks.chat import OPENAI, Endpoint, price
from benchmarks.predictions import read_manifest, read_predictions
from recipes.errors import UserError

CALLS = 4
# More patient than a judge: volumes are long to read, and a row that failed stays so.
RETRIES = 10
SECONDS = 600.0


def add(parser: argparse.ArgumentParser) -> None:
    """Declares the options."""
    server = parser.add_argument_group("a model on a server with OpenAI's chat interface")
    server.add_argument(
        "--engine",
        choices=("hf", "openai"),
        default="hf",
        help="openai: the words name models on a server, which --recipe tells how to ask; key: OPENAI_API_KEY",
    )
    server.add_argument("--server", metavar="URL", help="its address up to /v1 (default: OpenAI's)")
    server.add_argument(
        "--price",
        nargs=2,
        type=price,
        metavar=("IN", "OUT"),
        help="dollars per million tokens of prompt and reply, to tell the cost",
    )
    server.add_argument("--parallel", type=int, metavar="N", help=f"calls at a time (default: {CALLS})")


def check(arguments: argparse.Namespace) -> None:
    """Refuses options of servers without one, and what a model on a server cannot do.

    Raises:
        UserError: Names the option.
    """
    if arguments.engine == "hf":
        given = [name for name in ("server", "price", "parallel") if getattr(arguments, name) is not None]
        if given:
            raise UserError(f"--{given[0]} is for models on a server", fix="add --engine openai, or drop it")
        return
    if not arguments.weights:
        raise UserError("--engine openai names no model", fix="give the name that the server knows, such as gpt-4o")
    if arguments.image or arguments.allow_encoder_mismatch:
        option = "--image" if arguments.image else "--allow-encoder-mismatch"
        raise UserError(f"{option} is for weights that are loaded here", fix="drop it, or --engine openai")
    if arguments.parallel is not None and arguments.parallel < 1:
        raise UserError(f"--parallel {arguments.parallel} is not positive", fix="give 1 or more")


def endpoint(arguments: argparse.Namespace, model: str, key: str | None) -> Endpoint:
    """Whom to ask for a model."""
    return Endpoint(
        model=model,
        url=arguments.server or OPENAI,
        key=key,
        price=None if arguments.price is None else (arguments.price[0], arguments.price[1]),
        retries=RETRIES,
        seconds=SECONDS,
    )


def threads(arguments: argparse.Namespace) -> int:
    """Calls at a time; 1 for weights that are loaded here."""
    return 1 if arguments.engine == "hf" else arguments.parallel or CALLS


def outcome(folder: Path) -> list[str]:
    """Lines on what failed, and on the cost where prices were given."""
    lines, rows, timing = [], read_predictions(folder), read_manifest(folder).timing
    failed = [row for row in rows if row.error is not None]
    if failed:
        lines = [
            f"failed: {len(failed)} of {len(rows)} records, first {failed[0].id}: {failed[0].error}",
            "        the same command with --retry-errors asks them again",
        ]
    if "dollars_per_million_new_tokens" in timing:
        told = f"${timing['dollars']:.4f}" if "dollars" in timing else "unknown: the server did not count all tokens"
        lines.append(f"cost: {told}")
    return lines
