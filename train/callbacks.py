"""What happens between steps: when to validate and save, which pass over the data it is, bad losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch.utils.tensorboard import SummaryWriter
from transformers import EarlyStoppingCallback, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.integrations import TensorBoardCallback

from models.registry import family_module
from recipes.schema import Recipe
from train.checkpoints import SealCheckpoints
from train.prepare import Prepared
from train.trainer import check_finite


class Rhythm(TrainerCallback):  # type: ignore[misc]
    """Validates and saves when the recipe says so, and counts passes over the data.

    The Trainer sees one long epoch, hence cannot know where a pass ends.

    Args:
        recipe: The recipe.
        steps_per_epoch: Steps of a pass.
        total: Steps of the run.
    """

    def __init__(self, recipe: Recipe, *, steps_per_epoch: int, total: int) -> None:
        self.per_epoch = steps_per_epoch
        self.total = total
        self.save = recipe.train.save_steps
        self.validate = recipe.train.validate_steps
        self.validated = recipe.data.validation is not None

    def on_step_end(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the callback's signature
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,  # noqa: ARG002
    ) -> TrainerControl:
        """Decides after each step."""
        step = state.global_step
        state.epoch = step / self.per_epoch
        last = step >= self.total
        control.should_save = last or step % (self.save or self.per_epoch) == 0
        control.should_evaluate = self.validated and (
            control.should_save or (self.validate is not None and step % self.validate == 0)
        )
        return control


class StopOnNaN(TrainerCallback):  # type: ignore[misc]
    """Ends the run with a message at the first logged loss that is not finite."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002 - the callback's signature
        logs: dict[str, float] | None = None,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """Checks `loss` and `eval_loss` of a log line."""
        for key in ("loss", "eval_loss"):
            if (value := (logs or {}).get(key)) is not None:
                check_finite(value, key, state.global_step, args.output_dir)


class SpareTower(TrainerCallback):  # type: ignore[misc]
    """Keeps the backward pass out of a frozen vision tower; the Trainer has set up checkpointing when it begins."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared

    def on_train_begin(
        self,
        args: TrainingArguments,  # noqa: ARG002 - the callback's signature
        state: TrainerState,  # noqa: ARG002
        control: TrainerControl,  # noqa: ARG002
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        """See `models.layout.Layout.spare_tower`."""
        family_module(self.prepared.recipe.model.family).spare_tower(self.prepared.model)


def callbacks(prepared: Prepared, out: Path, *, first: int, main: bool) -> list[TrainerCallback]:
    """All callbacks of a run.

    Args:
        prepared: The run.
        out: Run folder.
        first: Steps done before.
        main: Whether this is the main process.
    """
    recipe = prepared.recipe
    rhythm = Rhythm(recipe, steps_per_epoch=prepared.schedule.steps_per_epoch, total=prepared.steps)
    seals = SealCheckpoints(recipe.train.keep_checkpoints)
    found: list[TrainerCallback] = [
        StopOnNaN(),
        SpareTower(prepared),
        rhythm,
        seals,
        *curves(out, first=first, main=main),
    ]
    if recipe.selection.patience is not None:
        found.append(EarlyStoppingCallback(recipe.selection.patience))
    return found


def curves(out: Path, *, first: int, main: bool) -> list[TensorBoardCallback]:
    """TensorBoard curves under `out/tensorboard`, written by the main process.

    Args:
        out: Run folder.
        first: Steps done before; what an interrupted run wrote beyond them is hidden.
        main: Whether this is the main process.
    """
    if not main:
        return []
    writer = SummaryWriter(log_dir=str(out / "tensorboard"), purge_step=first + 1)
    return [TensorBoardCallback(writer)]
