"""Recipe to Hugging Face `TrainingArguments`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from models.processes import cpu_backend, process_state, uses_deepspeed
from recipes.schema import Recipe

NEVER = 1_000_000_000  # `train.callbacks.Rhythm` decides when to save and validate


def training_arguments(recipe: Recipe, out: Path, *, steps: int, quiet: bool) -> TrainingArguments:
    """The Trainer's settings for a recipe.

    Batches, accumulation, validation and the moments of saving are ours (train.plan, train.callbacks): to the
    Trainer a run is one epoch of `steps` batches.

    Args:
        recipe: The run.
        out: Run folder; checkpoints go to `out/checkpoints`.
        steps: Optimiser steps in all.
        quiet: No progress bar (all ranks but the first).
    """
    train = recipe.train
    best = best_metric(recipe)
    on_cpu = process_state().device.type == "cpu"
    return TrainingArguments(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=recipe.batch.size,  # read by DeepSpeed only
        gradient_accumulation_steps=1,
        learning_rate=train.learning_rate,
        weight_decay=train.weight_decay,
        adam_beta1=train.betas[0],
        adam_beta2=train.betas[1],
        adam_epsilon=train.epsilon,
        max_grad_norm=train.clip_norm,
        max_steps=steps,
        ignore_data_skip=True,
        warmup_steps=train.warmup_steps,
        **_schedule(recipe),
        bf16=train.precision == "bf16",
        fp16=train.precision == "fp16",
        use_cpu=on_cpu and not uses_deepspeed(),
        ddp_backend=cpu_backend(),
        activation_checkpointing=train.gradient_checkpointing,
        seed=train.seed,
        data_seed=train.seed,
        logging_steps=train.log_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=NEVER,
        save_total_limit=None,  # `train.checkpoints` removes old ones, after it has sealed the new one
        eval_strategy="no" if recipe.data.validation is None else "steps",
        eval_steps=NEVER,
        load_best_model_at_end=best is not None,
        metric_for_best_model=best,
        greater_is_better=None if best is None else best == "eval_score",
        remove_unused_columns=False,
        label_names=["targets"],
        ddp_find_unused_parameters=False,
        report_to="none",  # the curves are written by our own callback, to a folder of our choice
        disable_tqdm=quiet,
    )


def _schedule(recipe: Recipe) -> dict[str, Any]:
    train = recipe.train
    if train.schedule == "cosine":
        ratio = train.min_learning_rate_ratio
        return {"lr_scheduler_type": "cosine_with_min_lr", "lr_scheduler_kwargs": {"min_lr_rate": ratio}}
    if train.schedule == "constant":
        return {"lr_scheduler_type": "constant_with_warmup"}
    return {"lr_scheduler_type": "linear"}


def best_metric(recipe: Recipe) -> str | None:
    """The validation metric that decides on the best checkpoint; `None` keeps the last weights."""
    if recipe.data.validation is None or recipe.selection.by == "last":
        return None
    return f"eval_{recipe.selection.by}"
