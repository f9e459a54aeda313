"""Our side of the job: what `python -m train` and `python -m infer` do, on rows in place of a prepared dataset."""

from __future__ import annotations

import gc
import json
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from transformers import AutoProcessor

from benchmarks.images import image_size
from benchmarks.schema import Answer, Image, Record, Source
from collators.base import Collator
from collators.encoder import build_encoder
from collators.packing import image_set
from collators.sources import FolderImages
from infer.engines.local import local_engine, prediction_blocks
from models.registry import family_collator, family_module
from perf.bare import bare_trainer
from perf.rounds import MeasurementError
from perf.rows import Row, read_rows, rows_file
from perf.stopwatch import NEW_TOKENS, Job, Stopwatch, import_rest
from recipes.load import load_recipe
from recipes.schema import Recipe
from train.cuts import Sample, Step, cut_step
from train.loader import StepLoader
from train.plan import Plan
from train.trainer import GroundedTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin

ROOT = Path("/")  # so that rows may name pictures anywhere
ROWS = 64  # questions that are answered at a time


class InOrder(Plan):
    """The samples as they come, so many a step; the last one takes what is left."""

    def epoch(self, number: int) -> list[Step]:  # noqa: ARG002 - all are alike
        """The steps of an epoch."""
        order = range(len(self.samples))
        return [
            cut_step(
                order[start : start + self.per_step],
                self.samples,
                self.batch,
                processes=self.processes,
                packed=self.packed,
            )
            for start in range(0, len(order), self.per_step)
        ]


def train_ours(
    job: Job, *, share: bool, overrides: Sequence[str] = (), watch: type[Stopwatch] = Stopwatch
) -> dict[str, Any]:
    """Trains a LoRA adapter.

    Args:
        job: The job.
        share: Whether questions about the same pictures are computed together (`batch.share_images`).
        overrides: `section.key=value` changes to the recipe.
        watch: Takes time and memory.

    Returns:
        The figures of `Stopwatch`; `losses`, the mean over the supervised tokens of each optimiser step; `shared`,
        tokens of a question up to the end of its last picture, and `own`, those after it, target included: means.
    """
    recipe = job_recipe(job, share=share, overrides=overrides)
    import_rest()
    gc.freeze()  # as `python -m train` does
    model, processor = load(recipe)
    family = family_module(recipe.model.family)
    model = family.adapt(model, recipe.adapter, seed=recipe.train.seed)
    if share:
        family.share_images(model)
    with tempfile.TemporaryDirectory() as name:
        started = watch()
        records = read_records(job)
        collator = family_collator(recipe.model.family)(
            build_encoder(recipe, processor),
            processor,
            FolderImages(ROOT),
            targets=True,
            share_images=share,
        )
        trainer = _trainer(recipe, model, processor, collator, records, Path(name))
        trainer.train()
        figures = started.figures(job.questions)
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {**figures, "losses": losses, **token_counts(collator, records)}


def answer_ours(job: Job) -> dict[str, Any]:
    """Answers.

    Returns:
        The figures of `Stopwatch`, and `answers`: the new tokens of each question.
    """
    recipe = job_recipe(job, share=True)
    model, processor = load(recipe)
    family_module(recipe.model.family).share_images(model)
    watch = Stopwatch()
    records = read_records(job)
    encoder = build_encoder(recipe, processor)
    engine = local_engine(recipe, model.eval(), encoder, processor, FolderImages(ROOT))
    engine.end_ids = []  # answers end at the limit alone
    answers: dict[int, list[int]] = {}
    for block in prediction_blocks(records, recipe, encoder):
        members = [records[number] for number in block]
        for number, record, generated in zip(block, members, engine.generate(members), strict=True):
            if generated.error is not None:
                raise MeasurementError(generated.error, where=record.place, fix="mend the row or its pictures")
            answers[number] = list(generated.ids)
    return {**watch.figures(job.questions), "answers": [answers[number] for number in range(len(records))]}


def job_recipe(job: Job, *, share: bool, overrides: Sequence[str] = ()) -> Recipe:
    """The recipe of the job: LoRA of rank 8 on all projections of the language model, AdamW at a constant 1e-3.

    Args:
        job: The job.
        share: See `train_ours`.
        overrides: `section.key=value` changes to it.
    """
    samples, accumulation = (job.step, 1) if share else (1, job.step)
    size = AutoProcessor.from_pretrained(job.model).image_processor.size
    return load_recipe(
        "demo/lora",
        [
            f"data={{dataset: {json.dumps(str(job.data))}, validation: null}}",
            f"model.checkpoint={json.dumps(str(job.model))}",
            "prompt.template=plain",
            "codec=plain",
            # As the other sides show them.
            f"images={{min_pixels: {size['shortest_edge']}, max_pixels: {size['longest_edge']}}}",
            "adapter={kind: lora, rank: 8, alpha: 16, dropout: 0.0, roles: [attention, mlp]}",
            f"batch={{size: {samples}, accumulation: {accumulation}, loss_reduction: token, workers: 0}}",
            f"batch.share_images={json.dumps(share)}",
            "train.learning_rate=1.0e-3",
            "train.weight_decay=0.0",
            "train.betas=[0.9, 0.999]",
            "train.clip_norm=1.0",
            "train.schedule=constant",
            "train.min_learning_rate_ratio=0",
            "train.warmup_steps=0",
            f"train.max_steps={math.ceil(job.questions / job.step)}",
            "train.log_steps=1",
            f"decoding={{max_new_tokens: {NEW_TOKENS}, batch_size: {ROWS}}}",
            *overrides,
        ],
    )


def load(recipe: Recipe) -> tuple[PreTrainedModel, ProcessorMixin]:
    """Model and processor of a recipe, the weights in memory."""
    family = family_module(recipe.model.family)
    model = family.load_model(recipe.model)
    for parameter in model.parameters():
        parameter.sum()  # weights may be mapped from their file
    return model, family.load_processor(recipe.model, recipe.images)


def read_records(job: Job) -> list[Record]:
    """The rows of a job as records."""
    sizes: dict[Path, tuple[int, int]] = {}
    return [
        _record(job, row, number, sizes)
        for number, row in enumerate(read_rows(job.data, job.task, job.questions), start=1)
    ]


def _record(job: Job, row: Row, number: int, sizes: dict[Path, tuple[int, int]]) -> Record:
    source = Source(id=row.id, file=rows_file(job.data, job.task).name, row=number)
    images = []
    for path in ((job.data / name).resolve() for name in row.images):
        if path not in sizes:
            sizes[path] = image_size(path, where=f"{rows_file(job.data, job.task)} row {number}")
        width, height = sizes[path]
        images.append(Image(path=path.relative_to(ROOT).as_posix(), width=width, height=height))
    return Record(
        id=row.id,
        benchmark="perf",
        split="train",
        task=job.task,
        group=row.images[0],
        images=tuple(images),
        question=row.question,
        target=Answer(text=row.answer),
        source=source,
    )


def _trainer(
    recipe: Recipe,
    model: PreTrainedModel,
    processor: ProcessorMixin,
    collator: Collator,
    records: Sequence[Record],
    out: Path,
) -> GroundedTrainer:
    """The Trainer of `python -m train`, without its files."""
    samples = [
        Sample(tokens=length.total, target=length.target, images=image_set(record), prefix=length.prefix)
        for record, length in zip(records, collator.measure(records), strict=True)
    ]
    plan = InOrder(samples, recipe.batch, seed=recipe.train.seed, processes=1, packed=collator.packs)
    total = plan.steps_per_epoch
    steps = StepLoader(plan, records, collator, rank=0, first=0, total=total, pin=False)
    return bare_trainer(recipe, model, processor, steps, out)


def token_counts(collator: Collator, records: Sequence[Record]) -> dict[str, float]:
    """Means over records of the tokens up to the end of the last picture (`shared`) and after it (`own`)."""
    lengths = collator.measure(records)
    # One more than the prefix: a token that closes the picture.
    shared, total = fmean(length.prefix + 1 for length in lengths), fmean(length.total for length in lengths)
    return {"shared": shared, "own": total - shared}
