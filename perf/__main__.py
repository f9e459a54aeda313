"""Measurements of speed and memory: `python -m perf NAME [options]`; the last line of each is JSON.

score     scoring of 38,469 rows in both profiles, on one core
heads     cross-entropy with logits at every position, and at supervised positions only
batching  answers given alone and in batches, in float32 and in bfloat16
canvas    two views to the pixels that PaliGemma sees, and location codes written and read, on one core
paligemma a training step of PaliGemma on our path, and with stock processor, Trainer and loss
volumes   a training step and an answer on volumes of 15, 30 and 60 slices, on our path and on the stock one
workload  data and a random model for `job`
job       one fixed job, training or answers, for comparison with other programs
train     that job's training on our path, with a plain loop and with TRL
infer     that job's answers on our path, and with `generate` at several batch sizes
profile   where the time of that job's steps and answers goes
memory    memory of that job's training at its peak, by how a step's questions are computed
load      how fast questions are read and prepared, by our collator, with workers and kept features, and by the processor
gpu       steps and answers of Qwen3-VL in its real sizes on one GPU (perf/gpu.sh)
wheels    names of the packages that `gpu` needs beside torch (make gpu-wheels)
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from perf import heads, infer, job, load, memory, paligemma, profile, train, volumes, workload
from perf.heads import HeadSize, run_heads
from perf.paligemma import StepSize, run_paligemma
from perf.rows import TASKS
from perf.volumes import VolumeSize, run_volumes
from perf.workload import GROUP, Workload
from recipes.errors import run_command

if TYPE_CHECKING:
    from perf.comparison import Case
    from perf.stopwatch import Job


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    if options.command in ("score", "canvas"):
        # Before numpy is imported, since it starts one thread per core that it may use.
        _stay_on_one_core()
    COMMANDS[options.command](options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m perf", description="Measures speed and memory.")
    commands = parser.add_subparsers(dest="command", required=True)
    score = commands.add_parser("score", help="scoring of as many rows as ScintiGround has, in both profiles")
    score.add_argument("--rows", type=int, default=38_469, help="default: 38469")
    score.add_argument("--resamples", type=int, default=2000, help="of each profile's bootstrap; default: 2000")
    head = commands.add_parser("heads", help="logits at every position, and at supervised positions only")
    _add_size(head, HeadSize, (*heads.SIDES, heads.COMPARE))
    batching = commands.add_parser("batching", help="answers given alone and in batches, in 32 and in 16 bits")
    batching.add_argument("weights", metavar="RUN_OR_MODEL", help="run folder, model folder or hub name")
    batching.add_argument("--data", type=Path, required=True, help="prepared dataset")
    batching.add_argument("--split", default="test", choices=("train", "val", "test"), help="default: test")
    batching.add_argument("--recipe", help="recipe, if there is none beside the weights")
    batching.add_argument("--limit", type=_positive, default=200, metavar="N", help="questions; default: 200")
    batching.add_argument("--batch", type=_positive, default=8, metavar="N", help="questions per batch; default: 8")
    canvas = commands.add_parser("canvas", help="canvases drawn, location codes written and read")
    canvas.add_argument("--patients", type=_positive, default=24, help="each with one canvas; default: 24")
    canvas.add_argument("--questions", type=_positive, default=60, help="per patient and task; default: 60")
    canvas.add_argument("--rounds", type=_positive, default=5, help="measurements of each side; default: 5")
    step = commands.add_parser("paligemma", help="a training step on our path, and on the stock one")
    _add_size(step, StepSize, (*paligemma.SIDES, paligemma.CHECK))
    step.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    volume = commands.add_parser("volumes", help="a training step and an answer by the number of slices")
    _add_size(volume, VolumeSize, volumes.SIDES, rounds=2)
    volume.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    work = _add_documented(commands, "workload", workload, "data and a random model for `job`")
    work.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets the folders data and model")
    _add_fields(work, Workload)
    fixed = _add_documented(
        commands, "job", job, "one fixed job, training or answers, for comparison with other programs"
    )
    _add_job(fixed)
    fixed.add_argument("--out", type=Path, required=True, metavar="FILE", help="gets the figures as JSON")
    fixed.add_argument("--infer", action="store_true", help="answer; without it, train")
    _add_comparison(commands.add_parser("train", help="training on our path, with a plain loop and with TRL"), train)
    _add_comparison(commands.add_parser("infer", help="answers on our path and with `generate`"), infer)
    _add_comparison(commands.add_parser("profile", help="where the time of a step and of an answer goes"), profile)
    _add_comparison(commands.add_parser("memory", help="memory of training at its peak"), memory)
    _add_comparison(commands.add_parser("load", help="how fast questions are read and prepared"), load)
    _add_gpu(commands)
    return parser


def _add_documented(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, module: ModuleType, line: str
) -> argparse.ArgumentParser:
    """A command whose `--help` is the module's own text."""
    return commands.add_parser(
        name, help=line, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def _add_gpu(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    gpu = commands.add_parser("gpu", help="steps and answers of Qwen3-VL in its real sizes on one GPU")
    gpu.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="gets gpu.jsonl and gpu.md")
    gpu.add_argument("--budget", type=float, default=420.0, metavar="S", help="seconds; default: 420")
    gpu.add_argument("--dry", action="store_true", help="small shapes on the CPU: shows that every case runs")
    wheels = commands.add_parser("wheels", help="names of the packages that `gpu` needs beside torch")
    wheels.add_argument("--check", type=Path, metavar="FOLDER", help="check the wheels in a folder instead")


def _add_size(
    parser: argparse.ArgumentParser,
    size: type[HeadSize | StepSize | VolumeSize],
    sides: Sequence[str],
    *,
    rounds: int = 3,
) -> None:
    """The fields of a size as options, and how the benchmark starts its own processes."""
    _add_fields(parser, size)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"measurements of each side; default: {rounds}")
    parser.add_argument("--side", choices=sides, help=argparse.SUPPRESS)


def _add_fields(parser: argparse.ArgumentParser, size: type[HeadSize | StepSize | VolumeSize | Workload]) -> None:
    for field in fields(size):
        parser.add_argument(f"--{field.name}", type=_positive, default=field.default, help=f"default: {field.default}")


def _add_job(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="holds {volumes,pairs}.plain.jsonl")
    parser.add_argument("--model", type=Path, required=True, metavar="FOLDER", help="a Qwen3-VL")
    parser.add_argument("--task", choices=TASKS, required=True)
    parser.add_argument("--questions", type=_positive, required=True, metavar="N", help="the first N rows")
    parser.set_defaults(step=GROUP)


def _add_comparison(parser: argparse.ArgumentParser, benchmark: ModuleType) -> None:
    """What to measure, and how the benchmark starts its own processes."""
    parser.add_argument("--cases", nargs="+", choices=benchmark.CASES, help="default: all")
    parser.add_argument("--rounds", type=_positive, default=2, help="measurements of each side; default: 2")
    parser.add_argument("--threads", type=_positive, default=1, help="of each process; default: 1")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="gets the table as Markdown and the figures as JSON")
    parser.add_argument("--side", choices=benchmark.SIDES, help=argparse.SUPPRESS)
    for name, kind in (("data", Path), ("model", Path), ("task", str), ("questions", int), ("step", int)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)


def _positive(text: str) -> int:
    try:
        number = int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from error
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not positive")
    return number


def _stay_on_one_core() -> None:
    """Leaves this process one core where the system allows to choose."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


def _score(options: argparse.Namespace) -> None:
    from perf.score import run_score

    run_score(rows=options.rows, resamples=options.resamples)


def _heads(options: argparse.Namespace) -> None:
    size = HeadSize(**{field.name: getattr(options, field.name) for field in fields(HeadSize)})
    if options.side is None:
        run_heads(size, rounds=options.rounds)
        return
    from perf.heads_pass import run_side

    run_side(options.side, size)


def _batching(options: argparse.Namespace) -> None:
    from perf.batching import run_batching

    run_batching(
        options.weights,
        options.data,
        split=options.split,
        recipe=options.recipe,
        limit=options.limit,
        batch=options.batch,
    )


def _canvas(options: argparse.Namespace) -> None:
    from perf.canvas import run_canvas

    run_canvas(patients=options.patients, questions=options.questions, rounds=options.rounds)


def _paligemma(options: argparse.Namespace) -> None:
    size = StepSize(**{field.name: getattr(options, field.name) for field in fields(StepSize)})
    if options.side is None:
        run_paligemma(size, rounds=options.rounds)
        return
    from perf.paligemma_step import run_side

    run_side(options.side, size, options.folder)


def _volumes(options: argparse.Namespace) -> None:
    size = VolumeSize(**{field.name: getattr(options, field.name) for field in fields(VolumeSize)})
    if options.side is None:
        run_volumes(size, rounds=options.rounds)
        return
    from perf.volumes_step import run_side

    run_side(options.side, size, options.folder)


def _workload(options: argparse.Namespace) -> None:
    from perf.workload import write_workload

    write_workload(options.out, Workload(**{field.name: getattr(options, field.name) for field in fields(Workload)}))


def _job(options: argparse.Namespace) -> None:
    from perf.job import run_job

    run_job(_job_of(options), options.out, infer=options.infer)


def _train(options: argparse.Namespace) -> None:
    _compare(options, train.CASES, train.run_train)


def _infer(options: argparse.Namespace) -> None:
    _compare(options, infer.CASES, infer.run_infer)


def _profile(options: argparse.Namespace) -> None:
    _compare(options, profile.CASES, profile.run_profile, sides="perf.profile_side")


def _memory(options: argparse.Namespace) -> None:
    _compare(options, memory.CASES, memory.run_memory, sides="perf.memory_side")


def _load(options: argparse.Namespace) -> None:
    _compare(options, load.CASES, load.run_load, sides="perf.load_side")


def _gpu(options: argparse.Namespace) -> None:
    if options.dry:
        os.environ["ACCELERATE_USE_CPU"] = "true"
    from perf.gpu import run_gpu

    run_gpu(options.out, budget=options.budget, dry=options.dry)


def _wheels(options: argparse.Namespace) -> None:
    from perf.wheels import WHEELS, check_wheels

    if options.check is None:
        print("\n".join(WHEELS))
    else:
        print(f"{len(WHEELS)} wheels, {check_wheels(options.check):,} bytes")


def _compare(
    options: argparse.Namespace, cases: Mapping[str, Case], run: Callable[..., None], *, sides: str = "perf.sides"
) -> None:
    if options.side is None:
        os.environ["OMP_NUM_THREADS"] = str(options.threads)  # for the processes that measure
        chosen = {name: case for name, case in cases.items() if options.cases is None or name in options.cases}
        run(chosen, rounds=options.rounds, threads=options.threads, out=options.out)
        return
    import_module(sides).run_side(options.side, _job_of(options))


def _job_of(options: argparse.Namespace) -> Job:
    from perf.stopwatch import Job

    return Job(
        data=options.data, model=options.model, task=options.task, questions=options.questions, step=options.step
    )


COMMANDS = {
    "score": _score,
    "heads": _heads,
    "batching": _batching,
    "canvas": _canvas,
    "paligemma": _paligemma,
    "volumes": _volumes,
    "workload": _workload,
    "job": _job,
    "train": _train,
    "infer": _infer,
    "profile": _profile,
    "memory": _memory,
    "load": _load,
    "gpu": _gpu,
    "wheels": _wheels,
}


if __name__ == "__main__":
    sys.exit(run_command(main))
