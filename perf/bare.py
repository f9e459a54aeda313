"""What `python -m train` trains with, without its files: for measurements."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PrinterCallback, TrainerCallback
from transformers.trainer_utils import SaveStrategy

from recipes.schema import Recipe
from train.arguments import training_arguments
from train.loader import StepLoader
from train.prepare import Prepared
from train.trainer import GroundedTrainer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, ProcessorMixin, TrainingArguments


def loader_of(prepared: Prepared) -> StepLoader:
    """All steps of a run, for one process."""
    return StepLoader(
        prepared.schedule,
        prepared.train.records,
        prepared.collator,
        rank=0,
        first=0,
        total=prepared.steps,
        pin=False,
    )


def trainer_of(prepared: Prepared, folder: Path, callbacks: Sequence[TrainerCallback] = ()) -> GroundedTrainer:
    """The `bare_trainer` of a whole run, for one process."""
    steps = loader_of(prepared)
    return bare_trainer(prepared.recipe, prepared.model, prepared.processor, steps, folder, callbacks)


def bare_arguments(recipe: Recipe, folder: Path, *, steps: int) -> TrainingArguments:
    """The Trainer's arguments, but for checkpoints."""
    arguments = training_arguments(recipe, folder, steps=steps, quiet=True)
    arguments.save_strategy = SaveStrategy.NO
    return arguments


def bare_trainer(
    recipe: Recipe,
    model: PreTrainedModel,
    processor: ProcessorMixin,
    steps: StepLoader,
    folder: Path,
    callbacks: Sequence[TrainerCallback] = (),
) -> GroundedTrainer:
    """A Trainer that neither validates, nor saves, nor prints.

    Args:
        recipe: The recipe.
        model: The adapted model.
        processor: The model's processor.
        steps: What it is fed.
        folder: Where it may write.
        callbacks: Further ones.
    """
    trainer = GroundedTrainer(
        recipe,
        model,
        steps,
        validate=None,
        args=bare_arguments(recipe, folder, steps=len(steps)),
        processing_class=processor,
        callbacks=list(callbacks),
    )
    trainer.remove_callback(PrinterCallback)
    return trainer
