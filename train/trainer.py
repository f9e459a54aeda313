"""The Hugging Face Trainer, fed whole optimiser steps from the plan, with our loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from accelerate.utils import send_to_device
from torch import Tensor, nn
from transformers import PreTrainedModel, Trainer, TrainerControl

from recipes.errors import UserError
from recipes.schema import Recipe
from train.loader import StepBatches, StepLoader
from train.loss import summed_loss
from train.optimizer import muon_with_adamw

if TYPE_CHECKING:
    from accelerate import Accelerator

NOT_FINITE_FIX = "lower train.learning_rate, or use train.precision bf16 or fp32 instead of fp16; the checkpoints written before are kept"
Validate = Callable[[nn.Module, "Accelerator", int], dict[str, float]]


class TrainingError(UserError):
    """A run that cannot go on."""


class GroundedTrainer(Trainer):  # type: ignore[misc]
    """Trainer whose batches are whole optimiser steps, cut into forward passes by the plan.

    The Trainer sees one long epoch of one batch per step; the plan knows the passes over the data. Accumulation
    happens here, so that the divisor of a step's loss is that of the whole step and passes may differ in size.

    Args:
        recipe: The recipe.
        model: Adapted model.
        steps: The steps of this process.
        validate: Called with the wrapped model, the accelerator and the step; returns metrics named `eval_...`.
        arguments: Further arguments of the Trainer.
    """

    def __init__(
        self, recipe: Recipe, model: nn.Module, steps: StepLoader, *, validate: Validate | None, **arguments: Any
    ) -> None:
        if recipe.train.optimizer == "muon":
            arguments["optimizers"] = (muon_with_adamw(model, recipe.train), None)
        super().__init__(model=model, **arguments)
        self._steps = steps
        self._validate = validate
        self.loss_is_scaled_for_ga = True  # divided by the whole step's items in `compute_loss`

    def get_train_dataloader(self) -> StepLoader:
        """The plan's steps; every process reads its own part, so nothing is sharded here."""
        return self._steps

    def training_step(self, model: nn.Module, inputs: StepBatches, num_items_in_batch: None = None) -> Tensor:  # noqa: ARG002
        """All forward and backward passes of one step; gradients are exchanged in the last one."""
        total = torch.zeros((), device=self.args.device)
        for number, batch in enumerate(inputs.batches, start=1):
            with self._exchanging(model, last=number == inputs.passes), self._explained(batch):
                total += super().training_step(model, batch, inputs.items)
        return total

    def _get_num_items_in_batch(self, batch_samples: list[StepBatches], device: torch.device) -> None:
        """Nothing to count: the plan knows what a step holds."""

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Copies the batch without waiting for it.

        Under DeepSpeed inputs take the model's type then; 16 bits would round the weights of the tokens.
        """
        moved: dict[str, Any] = send_to_device(inputs, self.args.device, non_blocking=True)
        return {**super()._prepare_inputs(moved), "weights": moved["weights"]}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,  # noqa: ARG002, FBT001, FBT002 - the Trainer's signature; never asked for
        num_items_in_batch: float = 1.0,
    ) -> Tensor:
        """This batch's share of the step's loss; the mean over processes of the summed shares is the step's loss."""
        targets, weights = inputs.pop("targets"), inputs.pop("weights")
        logits: Tensor = model(**inputs).logits
        loss = summed_loss(logits, targets, weights)
        share: Tensor = loss * self.accelerator.num_processes / num_items_in_batch
        return share

    @contextmanager
    def _exchanging(self, model: nn.Module, *, last: bool) -> Iterator[None]:
        """Lets processes exchange gradients in the last pass only; DeepSpeed is told so by `sync_gradients`."""
        self.accelerator.gradient_state._set_sync_gradients(last)
        if last:
            yield
        else:
            with self.accelerator.no_sync(model):
                yield

    @contextmanager
    def _explained(self, batch: dict[str, Any]) -> Iterator[None]:
        """Running out of memory says what was in the batch and what helps."""
        rows, tokens = batch["input_ids"].shape
        try:
            yield
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of memory on a batch of {rows} rows of {tokens} tokens, images included",
                where=f"step {self.state.global_step + 1}",
                fix="lower batch.size (and raise batch.accumulation) or batch.max_tokens, set "
                f"train.gradient_checkpointing, {self._steps.collator.smaller}, or use model.quantization: nf4; "
                "give another --out, the recipe changes",
            ) from error

    def evaluate(self, *arguments: Any, **keywords: Any) -> dict[str, float]:  # noqa: ARG002 - the recipe says what
        """Our validation in place of the Trainer's, which counts samples twice on several processes."""
        assert self._validate is not None, "the Trainer is not told to evaluate without validation"
        metrics = self._validate(self.model_wrapped, self.accelerator, self.state.global_step)
        self.log(dict(metrics))
        self.control: TrainerControl = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _determine_best_metric(self, metrics: dict[str, float], trial: None) -> bool:
        """A new best is saved at once, so that the best checkpoint is always there."""
        best: bool = super()._determine_best_metric(metrics, trial)
        self.control.should_save |= best
        return best

    def floating_point_ops(self, inputs: StepBatches) -> float:  # noqa: ARG002
        """Not counted per step."""
        return 0.0

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        """Every weight of a checkpoint finds its place, or the run ends."""
        if self._is_whole():
            load_whole(self.model, Path(resume_from_checkpoint))
        else:
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_best_model(self) -> None:
        """As `_load_from_checkpoint`."""
        if self._is_whole():
            load_whole(self.model, Path(str(self.state.best_model_checkpoint)))
        else:
            super()._load_best_model()

    def _is_whole(self) -> bool:
        """Whether this process holds the whole model, and all of it is saved."""
        return isinstance(self.model, PreTrainedModel) and not (self.is_deepspeed_enabled or self.is_fsdp_enabled)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Tensor] | None = None) -> None:
        """Writes tied weights once: the copies that DeepSpeed and FSDP make of them no longer look tied."""
        if state_dict is not None:
            tied = self.model.all_tied_weights_keys
            state_dict = {key: value for key, value in state_dict.items() if tied.get(key) not in state_dict}
        super()._save(output_dir, state_dict)

    def _save_checkpoint(self, model: nn.Module, trial: None) -> None:
        """A checkpoint never holds weights that a loss that is not a number may have spoilt."""
        check_finite(float(self._tr_loss), "loss", self.state.global_step, self.args.output_dir)
        super()._save_checkpoint(model, trial)


def load_whole(model: PreTrainedModel, folder: Path) -> None:
    """Fills a model with the weights of a checkpoint of the same class.

    Checkpoints carry the names of the released files, which for PaliGemma are not those of its modules. The Trainer
    (transformers 5.24) looks for the latter and goes on with what it has if it finds none.

    Raises:
        TrainingError: A weight is missing or has another shape.
    """
    # Float32 holds every 16-bit number exactly, and each goes into a parameter of the type that it was saved from.
    read, info = type(model).from_pretrained(
        folder, dtype=torch.float32, use_safetensors=True, output_loading_info=True, ignore_mismatched_sizes=True
    )
    lost = sorted({*info["missing_keys"], *info["unexpected_keys"], *(str(each) for each in info["mismatched_keys"])})
    if lost:
        raise TrainingError(
            f"{len(lost)} weights of the checkpoint do not fit the model, the first is {lost[0]}",
            where=str(folder),
            fix="continue with the versions it was written with, or start anew with --fresh",
        )
    model.load_state_dict(read.state_dict())


def check_finite(value: float, name: str, step: int, where: str) -> None:
    """Raises `TrainingError` for a loss that is not a number."""
    if not math.isfinite(value):
        raise TrainingError(
            f"{name} is {value} at step {step}",
            where=where,
            fix=NOT_FINITE_FIX,
        )
