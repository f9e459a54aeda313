"""The Hugging Face Trainer with our loss, and the callback that stops on a loss that is not a number."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from recipes.errors import UserError
from recipes.schema import Recipe
from train.loss import one_per_sample, supervised_loss
from train.optimizer import muon_with_adamw


class TrainingError(UserError):
    """A run that cannot go on."""


class GroundedTrainer(Trainer):  # type: ignore[misc]
    """Trainer that counts tokens or samples over a whole optimiser step, as the recipe's reduction says."""

    def __init__(self, recipe: Recipe, model: torch.nn.Module, **arguments: Any) -> None:
        if recipe.train.optimizer == "muon":
            arguments["optimizers"] = (muon_with_adamw(model, recipe.train), None)
        super().__init__(model=model, compute_loss_func=supervised_loss(recipe.batch.loss_reduction), **arguments)
        self._per_sample = recipe.batch.loss_reduction == "sample"

    def training_step(self, model: torch.nn.Module, inputs: dict[str, Tensor], *arguments: Any) -> Tensor:
        """One forward and backward pass; running out of memory says what was in it and what helps."""
        shape = tuple(inputs["input_ids"].shape)
        patches = len(inputs["pixel_values"])
        try:
            return super().training_step(model, inputs, *arguments)  # type: ignore[no-any-return]
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of memory on a batch of {shape[0]} samples of {shape[1]} tokens with {patches} image patches",
                where=f"step {self.state.global_step + 1}",
                fix="lower batch.size (and raise batch.accumulation), set train.gradient_checkpointing, lower "
                "images.max_pixels, or use model.quantization: nf4; give another --out, the recipe changes",
            ) from error

    def _get_num_items_in_batch(
        self, batch_samples: list[dict[str, Tensor]], device: torch.device
    ) -> Tensor | int | None:
        """What the step's loss is divided by, summed over its parts and processes."""
        if self._per_sample:
            batch_samples = [{"labels": one_per_sample(batch["labels"])} for batch in batch_samples]
        return super()._get_num_items_in_batch(batch_samples, device)  # type: ignore[no-any-return]


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
            value = (logs or {}).get(key)
            if value is not None and not math.isfinite(value):
                raise TrainingError(
                    f"{key} is {value} at step {state.global_step}",
                    where=str(args.output_dir),
                    fix="lower train.learning_rate, or use train.precision bf16 or fp32 instead of fp16; "
                    "the checkpoints written before are kept",
                )
