"""A few training steps of PaliGemma on one side; `perf.paligemma` starts it in a process of its own."""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image as PILImage
from transformers import AutoModelForImageTextToText, Trainer, TrainerCallback

from benchmarks.dataset import image_root
from benchmarks.schema import Record
from collators.canvas import draw_canvas
from collators.sources import FolderImages
from perf.bare import bare_arguments, trainer_of
from perf.canvas import stock_canvas
from perf.paligemma import CHECK, StepSize
from recipes.load import load_recipe
from recipes.schema import Recipe
from train.device_memory import PeakMemory
from train.prepare import Prepared, prepare

Draw = Callable[[Record], PILImage.Image]


class Clock(TrainerCallback):  # type: ignore[misc]
    """Notes when each step ends."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *arguments: Any, **keywords: Any) -> None:  # noqa: ARG002 - the callback's signature
        """Notes the time."""
        self.ends.append(time.perf_counter())

    @property
    def seconds(self) -> list[float]:
        """Of each step but the first, from the end of the one before."""
        return [end - start for start, end in itertools.pairwise(self.ends)]


def run_side(side: str, size: StepSize, folder: Path) -> None:
    """Measures one side and prints the result as JSON."""
    print(json.dumps(measure_side(side, size, folder)))


def measure_side(side: str, size: StepSize, folder: Path) -> dict[str, float]:
    """Trains on one side.

    Args:
        side: A key of `TRAINERS`.
        size: What is trained.
        folder: Holds `data` and `model`.

    Returns:
        `seconds` of a step (median), `peak_mib` above the loaded model, `first_loss` and `last_loss`.
    """
    prepared = prepare(step_recipe(size, folder), say=lambda line: None)  # noqa: ARG005
    clock = Clock()
    trainer = TRAINERS[side](prepared, folder, clock)
    _read_weights(prepared.model)
    peak = PeakMemory()
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {
        "seconds": statistics.median(clock.seconds),
        "peak_mib": peak.measured() / 1024**2,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }


def step_recipe(size: StepSize, folder: Path) -> Recipe:
    """The demo's recipe on the given model and data, for a few steps."""
    return load_recipe(
        "demo/paligemma_lora",
        [
            f"data={{dataset: {folder / 'data'}, validation: null}}",
            f"model.checkpoint={folder / 'model'}",
            f"canvas.size={size.pixels}",
            f"batch={{size: {size.batch}, accumulation: {size.accumulation}, workers: 0}}",
            f"train.max_steps={size.steps}",
            "train.schedule=constant",
            "train.min_learning_rate_ratio=0",
            "train.warmup_steps=0",
            "train.log_steps=1",
        ],
    )


def our_trainer(prepared: Prepared, folder: Path, clock: Clock) -> Trainer:
    """The Trainer of `python -m train`, without its files."""
    return trainer_of(prepared, folder, [clock])


def stock_trainer(prepared: Prepared, folder: Path, clock: Clock) -> Trainer:
    """The Trainer of transformers with stock batches and the model's own loss, over the same samples in order."""
    images = FolderImages(image_root(Path(prepared.recipe.data.dataset)))
    return _plain_trainer(prepared, folder, clock, lambda record: stock_canvas(record, images, resize="squash"))


def check_trainer(prepared: Prepared, folder: Path, clock: Clock) -> Trainer:
    """The same on our canvases, so that nothing but the arithmetic of the losses can differ from ours."""
    images = FolderImages(image_root(Path(prepared.recipe.data.dataset)))
    plan = prepared.encoder.canvas
    assert plan is not None
    return _plain_trainer(prepared, folder, clock, lambda record: draw_canvas(record, plan, images))


TRAINERS: dict[str, Callable[[Prepared, Path, Clock], Trainer]] = {
    "stock": stock_trainer,
    "ours": our_trainer,
    CHECK: check_trainer,
}


def _plain_trainer(prepared: Prepared, folder: Path, clock: Clock, draw: Draw) -> Trainer:
    arguments = bare_arguments(prepared.recipe, folder, steps=prepared.steps)
    arguments.gradient_accumulation_steps = prepared.recipe.batch.accumulation
    arguments.train_sampling_strategy = "sequential"
    order = [
        sample
        for step in prepared.schedule.steps(0, prepared.steps)
        for part in step.parts
        for micro in part
        for sample in micro.samples
    ]
    return Trainer(
        prepared.model,
        arguments,
        train_dataset=[prepared.train.records[sample] for sample in order],
        data_collator=_stock_collator(prepared, draw),
        callbacks=[clock],
    )


def enlarge_vocabulary(model: Path, rows: int) -> None:
    """Gives embeddings and head of the model in a folder so many rows; its tokenizer stays as it is."""
    loaded = AutoModelForImageTextToText.from_pretrained(model, dtype=torch.float32)
    torch.manual_seed(0)
    loaded.resize_token_embeddings(rows, mean_resizing=False)
    loaded.save_pretrained(model)


def _stock_collator(prepared: Prepared, draw: Draw) -> Callable[[Sequence[Record]], dict[str, Any]]:
    """Batches as `PaliGemmaProcessor` makes them, labels included."""
    encoder, processor = prepared.encoder, prepared.processor

    def collate(records: Sequence[Record]) -> dict[str, Any]:
        batch: dict[str, Any] = processor(
            text=[f"<image>{encoder.prompt_text(record.ask())}" for record in records],
            images=[draw(record) for record in records],
            suffix=[encoder.target_text(record) for record in records],
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )
        return batch

    return collate


def _read_weights(model: torch.nn.Module) -> None:
    """Weights may be mapped from their file: reading them brings them into memory before the measurement."""
    for parameter in model.parameters():
        parameter.sum()
