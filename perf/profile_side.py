"""One side of `perf.profile`, in a process of its own: a run or its answers, with the time of every phase."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.dataset import write_dataset
from collators.sources import FolderImages
from infer.engines.local import local_engine, prediction_blocks
from perf.bare import trainer_of
from perf.ours import ROOT, job_recipe, read_records
from perf.phase_hooks import PHASES, time_engine, time_trainer
from perf.phases import REST, PhaseClock, added
from perf.stopwatch import Job, import_rest
from train.prepare import Prepared, prepare

Figures = dict[str, dict[str, Any]]


def run_side(side: str, job: Job) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(MEASURES[side](job)))


@contextmanager
def prepared_job(job: Job, *, share: bool, epochs: int = 1, overrides: Sequence[str] = ()) -> Iterator[Prepared]:
    """The job as a run of `python -m train`: its rows are a prepared dataset while the context lasts.

    Args:
        job: The job.
        share: Whether questions about the same pictures are computed together (`batch.share_images`).
        epochs: Passes over the rows.
        overrides: Further `section.key=value` changes to the recipe.
    """
    with tempfile.TemporaryDirectory() as name:
        records = read_records(job)
        write_dataset(Path(name), records, name="perf", benchmark="perf", reader="perf@1", image_root=ROOT, sources={})
        changes = [f"data.dataset={json.dumps(name)}", f"train.max_steps={epochs * math.ceil(len(records) / job.step)}"]
        recipe = job_recipe(job, share=share, overrides=[*changes, *overrides])
        import_rest()
        prepared = prepare(recipe, say=lambda line: None)  # noqa: ARG005
        for parameter in prepared.model.parameters():
            parameter.sum()  # weights may be mapped from their file
        yield prepared


def profile_training(job: Job, *, share: bool, epochs: int = 1, cache: bool = False) -> Figures:
    """Trains.

    Args:
        job: The job.
        share: See `prepared_job`.
        epochs: Passes over the rows, each told apart if there are several.
        cache: Keep vision features in memory.

    Returns:
        Epoch -> `seconds` of a question and its `phases`; a single epoch has no name.
    """
    overrides = ("vision_cache=memory",) if cache else ()
    with prepared_job(job, share=share, epochs=epochs, overrides=overrides) as prepared:
        trainer = trainer_of(prepared, Path(prepared.recipe.data.dataset))
        clock = PhaseClock(prepared.model.device)
        time_trainer(clock, trainer)
        trainer.train()
    per_epoch = (len(clock.lap_ends) - 1) // epochs
    return {
        f"epoch {number + 1}" if epochs > 1 else "": figures(
            clock, job.questions, first=1 + number * per_epoch, last=1 + (number + 1) * per_epoch
        )
        for number in range(epochs)
    }


def profile_answers(job: Job, *, share: bool) -> Figures:
    """Answers; see `profile_training`."""
    with prepared_job(job, share=share, overrides=(f"decoding.share_images={json.dumps(share)}",)) as prepared:
        recipe, data = prepared.recipe, prepared.train.records
        records = [data[number] for number in range(len(data))]
        engine = local_engine(recipe, prepared.model.eval(), prepared.encoder, prepared.processor, FolderImages(ROOT))
        engine.end_ids = []  # answers end at the limit alone
        engine.config.eos_token_id = None
        clock = PhaseClock(prepared.model.device)
        time_engine(clock, engine)
        clock.lap()
        for block in prediction_blocks(records, recipe, prepared.encoder):
            engine.generate([records[number] for number in block])
        clock.lap()
    return {"": figures(clock, job.questions, first=1, last=2)}


def figures(clock: PhaseClock, questions: int, *, first: int, last: int) -> dict[str, Any]:
    """Seconds of a question over some laps, by another clock than that of the phases, and by phase.

    Args:
        clock: Has run.
        questions: That these laps computed.
        first: The first lap.
        last: The lap behind them.
    """
    seconds = clock.lap_ends[last - 1] - clock.lap_ends[first - 1]
    found = added(clock.laps()[first:last])
    phases = {phase: found[phase] for phase in PHASES if phase in found}
    phases[REST] = seconds - sum(phases.values())
    return {
        "seconds": seconds / questions,
        "phases": {phase: value / questions for phase, value in phases.items()},
    }


MEASURES: dict[str, Callable[[Job], Figures]] = {
    "train-shared": partial(profile_training, share=True),
    "train-separate": partial(profile_training, share=False),
    "train-cached": partial(profile_training, share=True, epochs=2, cache=True),
    "answer-shared": partial(profile_answers, share=True),
    "answer-separate": partial(profile_answers, share=False),
}
