"""Scores prediction folders.

    python -m eval PREDICTIONS... [--data DATASET] [--profile published|corrected|both]
                   [--json FILE] [--html FILE] [--resamples N] [--seed S] [--compare A B]
                   [--threshold-from VALIDATION]
                   [--judge MODEL [--judge-url URL] [--judge-price IN OUT]] [--bertscore [MODEL]]
    python -m eval conform FILE.json

The first form prints tables of all folders side by side: the `published` profile is what the
benchmark's own scorer gives, faults included; the `corrected` profile mends each known fault, with
intervals from a bootstrap over patients and paired differences. Where predictions carry label scores,
closed answers are scored as probabilities too, and `--threshold-from` chooses a threshold on predictions
of the validation split by the same system and shows what it changes. `--judge` and `--bertscore` add their parts to
the AR-Score of SGMRI-VQA; the judge's key is taken from OPENAI_API_KEY, and what both say is kept in `marks.jsonl` of each
prediction folder, so that a second run asks nothing again. `--json` writes the whole result
(schema: `eval/schema.py`), `--html` a page with pictures. The second form checks the published scorer
against a file of reference cases and exits with 1 if any differs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from benchmarks.chat import OPENAI, Endpoint, price
from recipes.errors import UserError, run_command

if TYPE_CHECKING:
    from eval.run import LoadedRun
    from eval.sgmri.marking import Marker


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["conform"]:
        return _conform(given[1:])
    options = _parser().parse_args(given)
    for path in (options.json, options.html):
        if path is not None and not path.parent.is_dir():
            raise UserError(f"the folder {path.parent} does not exist", where=str(path), fix="make it first")
    return _score(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m eval",
        description="Scores prediction folders; several folders make one table, with paired differences.",
        epilog="`python -m eval conform FILE.json` checks the published scorer against reference cases.",
    )
    parser.add_argument("predictions", nargs="+", type=Path, metavar="PREDICTIONS", help="finished prediction folder")
    parser.add_argument(
        "--data", type=Path, metavar="DATASET", help="dataset folder, if not where the manifest says; hash checked"
    )
    parser.add_argument("--profile", choices=("published", "corrected", "both"), default="both", help="default: both")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the whole result (schema: eval/schema.py)")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report page")
    parser.add_argument("--resamples", type=_resamples, default=2000, metavar="N", help="default: 2000")
    parser.add_argument("--seed", type=_seed, default=20260722, metavar="S", help="of the bootstrap")
    parser.add_argument(
        "--compare",
        nargs=2,
        action="append",
        metavar=("A", "B"),
        help="names or folders to compare; may be repeated (default: the first folder with each other one)",
    )
    parser.add_argument(
        "--threshold-from",
        type=Path,
        action="append",
        default=[],
        metavar="VALIDATION",
        help="predictions of the split `val` by one of the systems, to choose its thresholds on P(positive); "
        "once per system",
    )
    texts = parser.add_argument_group("AR-Score of SGMRI-VQA")
    texts.add_argument("--judge", metavar="MODEL", help="language model that judges answers; key: OPENAI_API_KEY")
    texts.add_argument("--judge-url", metavar="URL", help="OpenAI-compatible endpoint up to /v1 (default: OpenAI's)")
    texts.add_argument(
        "--judge-price",
        nargs=2,
        type=price,
        metavar=("IN", "OUT"),
        help="dollars per million tokens of prompt and reply, to tell the cost",
    )
    texts.add_argument(
        "--bertscore",
        nargs="?",
        const="roberta-large",
        metavar="MODEL",
        help="compute BERTScore (default: roberta-large)",
    )
    return parser


def _resamples(text: str) -> int:
    number = int(text)
    if number < 100:
        raise argparse.ArgumentTypeError(f"{number} resamples give no 95 % interval; use 100 or more")
    return number


def _seed(text: str) -> int:
    number = int(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"the seed {number} is negative")
    return number


def _score(options: argparse.Namespace) -> int:
    import msgspec

    from benchmarks.dataset import write_atomic
    from eval.evaluate import Profile, evaluate
    from eval.published import get_published
    from eval.run import load_runs
    from eval.schema import encode_result
    from eval.table import render

    runs = load_runs(options.predictions, options.data)
    pairs = None
    if options.compare is not None:
        pairs = [(_name(first, runs), _name(second, runs)) for first, second in options.compare]
    both: tuple[Profile, ...] = ("published", "corrected")
    profiles = both if options.profile == "both" else (options.profile,)
    if get_published(runs[0].info.benchmark) is None and "corrected" not in profiles:
        raise UserError(
            f"the benchmark {runs[0].info.benchmark!r} has no published scorer here",
            where=str(runs[0].data),
            fix="score it with --profile corrected",
        )
    marker = _marker(options, runs)
    marks = None
    if marker is not None:
        from eval.sgmri.marking import mark_runs

        marks = mark_runs(runs, marker, profiles)
    result = evaluate(
        runs,
        profiles=profiles,
        resamples=options.resamples,
        seed=options.seed,
        pairs=pairs,
        validation=_validation(options, runs),
        marks=marks,
    )
    if marker is not None:
        result = msgspec.structs.replace(result, notes=[*result.notes, *marker.notes()])
    print("\n".join(render(result)))
    print()
    if marker is not None and marker.judge is not None:
        print(marker.judge.summary())
    if options.json is not None:
        write_atomic(options.json, encode_result(result))
        print(f"result: {options.json}")
    if options.html is not None:
        from eval.report import write_report

        write_report(result, runs, options.html)
        print(f"report: {options.html}")
    if options.json is None and options.html is None:
        print("result: printed above only; --json FILE and --html FILE write it")
    incomplete = [system.name for system in result.systems if system.errors]
    if incomplete:
        print(f"WARNING: scores are incomplete, records failed in: {', '.join(incomplete)}")
    print(f"next: {_next(options)}")
    return 0


def _validation(options: argparse.Namespace, runs: Sequence[LoadedRun]) -> dict[str, LoadedRun]:
    """Name of a run -> the validation predictions that its thresholds come from."""
    if not options.threshold_from:
        return {}
    if options.profile == "published":
        raise UserError(
            "--threshold-from changes answers, which the published profile scores as they are",
            fix="leave it out, or score with --profile corrected or both",
        )
    from eval.threshold_match import match_validation

    return match_validation(runs, options.threshold_from, options.data)


def _marker(options: argparse.Namespace, runs: Sequence[LoadedRun]) -> Marker | None:
    """Who is to mark answer texts; `None` if nobody is."""
    if options.judge is None and (options.judge_url is not None or options.judge_price is not None):
        raise UserError("--judge-url and --judge-price say nothing without --judge", fix="name the judge's model")
    if options.judge is None and options.bertscore is None:
        return None
    if runs[0].info.benchmark != "sgmri":
        raise UserError(
            f"the scores of the benchmark {runs[0].info.benchmark!r} have no judge and no BERTScore",
            fix="leave --judge and --bertscore out",
        )
    if options.bertscore is not None and Path(options.bertscore).is_dir():
        raise UserError(
            f"--bertscore took the folder {options.bertscore} for a model",
            fix="put --bertscore after the folders, at the end of the line",
        )
    address = urlsplit(options.judge_url or "")
    if address.username or address.password or address.query:
        raise UserError(
            "--judge-url holds more than an address, which is printed and written",
            fix="give the key as OPENAI_API_KEY, and the URL up to /v1",
        )
    from eval.sgmri.bertscore import BertScore
    from eval.sgmri.judge import Judge
    from eval.sgmri.marking import Marker

    judge = None
    if options.judge is not None:
        judge = Judge(
            Endpoint(
                model=options.judge,
                url=options.judge_url or OPENAI,
                key=os.environ.get("OPENAI_API_KEY") or None,
                price=None if options.judge_price is None else (options.judge_price[0], options.judge_price[1]),
            )
        )
    return Marker(judge=judge, bertscore=None if options.bertscore is None else BertScore(options.bertscore))


def _next(options: argparse.Namespace) -> str:
    if options.html is not None:
        return f"open {options.html} in a browser"
    folders = " ".join(str(folder) for folder in options.predictions)
    data = f" --data {options.data}" if options.data is not None else ""
    thresholds = "".join(f" --threshold-from {folder}" for folder in options.threshold_from)
    judge = ""
    if options.judge is not None:
        judge += f" --judge {options.judge}"
        judge += f" --judge-url {options.judge_url}" if options.judge_url is not None else ""
        judge += " --judge-price {} {}".format(*options.judge_price) if options.judge_price is not None else ""
    bertscore = f" --bertscore {options.bertscore}" if options.bertscore is not None else ""
    return f"python -m eval {folders}{data}{thresholds}{judge}{bertscore} --html report.html"


def _name(given: str, runs: Sequence[LoadedRun]) -> str:
    """The run that `--compare` means, by name or folder."""
    found = [run.name for run in runs if given == run.name or Path(given).resolve() == run.folder.resolve()]
    if len(found) != 1:
        raise UserError(
            f"--compare {given!r} names {len(found) or 'none'} of the folders",
            fix=f"the names are {', '.join(repr(run.name) for run in runs)}",
        )
    return found[0]


def _conform(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m eval conform",
        description="Runs a file of reference cases through the published scorer and lists each mismatch.",
    )
    parser.add_argument("file", type=Path, metavar="FILE.json", help="layout of tests/vectors/scintiground.json")
    options = parser.parse_args(list(arguments))
    from eval.conform import conform_report

    lines, status = conform_report(options.file)
    print("\n".join(lines))
    return status


if __name__ == "__main__":
    sys.exit(run_command(main))
