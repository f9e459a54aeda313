"""Recipe to Hugging Face `TrainingArguments`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import TrainingArguments

from models.processes import process_state, uses_deepspeed
from recipes.schema import Recipe


def training_arguments(recipe: Recipe, out: Path, *, quiet: bool) -> TrainingArguments:
    """The Trainer's settings for a recipe.

    Args:
        recipe: The run.
        out: Run folder; checkpoints go to `out/checkpoints`.
        quiet: No progress bar (all ranks but the first).
    """
    train, batch = recipe.train, recipe.batch
    validated = recipe.data.validation is not None
    on_cpu = process_state().device.type == "cpu"
    return TrainingArguments(
        output_dir=str(out / "checkpoints"),
        per_device_train_batch_size=batch.size,
        per_device_eval_batch_size=batch.size,
        gradient_accumulation_steps=batch.accumulation,
        learning_rate=train.learning_rate,
        weight_decay=train.weight_decay,
        adam_beta1=train.betas[0],
        adam_beta2=train.betas[1],
        adam_epsilon=train.epsilon,
        max_grad_norm=train.clip_norm,
        num_train_epochs=train.epochs or 1.0,
        max_steps=train.max_steps or -1,
        warmup_steps=train.warmup_steps,
        **_schedule(recipe),
        bf16=train.precision == "bf16",
        fp16=train.precision == "fp16",
        use_cpu=on_cpu and not uses_deepspeed(),
        activation_checkpointing=train.gradient_checkpointing,
        seed=train.seed,
        data_seed=train.seed,
        logging_steps=train.log_steps,
        logging_first_step=True,
        logging_nan_inf_filter=False,
        save_strategy="steps" if train.save_steps else "epoch",
        save_steps=train.save_steps or 500,
        save_total_limit=train.keep_checkpoints,
        eval_strategy=_validation_strategy(recipe),
        eval_steps=train.validate_steps or train.save_steps,
        load_best_model_at_end=validated,
        metric_for_best_model="eval_loss" if validated else None,
        greater_is_better=False if validated else None,
        prediction_loss_only=True,
        dataloader_num_workers=batch.workers,
        dataloader_persistent_workers=batch.workers > 0,
        dataloader_pin_memory=not on_cpu,
        remove_unused_columns=False,
        label_names=["labels"],
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


def _validation_strategy(recipe: Recipe) -> str:
    if recipe.data.validation is None:
        return "no"
    return "steps" if recipe.train.validate_steps or recipe.train.save_steps else "epoch"
