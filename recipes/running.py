"""Recipe sections on how a run goes: which samples a step sees, how weights move, which checkpoint is kept, how answers are made.

See `recipes.schema`, which puts them into a recipe.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from recipes.inputs import Fraction, Positive, Section


class Batch(Section):
    """Which samples a step sees, and how they are cut into forward passes.

    Attributes:
        size: Samples per device and forward pass.
        accumulation: Forward passes per optimiser step; a step has size x accumulation x processes samples.
        max_tokens: Cut a step by tokens instead: no forward pass holds more, padding and images included; size x
            accumulation x processes stays the number of samples per step.
        group_by_length: Put samples of similar length into the same step, which saves padding.
        sampler: `shuffle` shows every sample once per epoch; `balanced` shows the strata of `balance` equally often
            within each task, in as many samples per epoch.
        balance: What `sampler: balanced` balances: `label`, or a key of the records' strata.
        balance_within: Keys of strata whose values are balanced apart, each keeping its share: where questions about
            the whole body are mostly answered yes and others mostly no, the wording else tells the answer.
        class_weights: Weight of a record's loss by the label of its answer; 1 for labels that are not named.
        max_length: Longest sample in tokens, images included; `null` sets no limit.
        max_target_tokens: Longest target in tokens; a longer one is an error.
        overlong: What to do with a sample above a limit; `drop` counts them in the manifest.
        loss_reduction: `token` averages over the supervised tokens of a step, `sample` first within each sample.
        share_images: Questions about the same images come into one step and are computed together, their images once:
            gradients stay those of the same samples computed apart. Only the order of samples changes: image sets come in random
            order, each with its questions behind one another. A pass is filled up to `size` samples or `max_tokens`.
        workers: Worker processes that read and prepare images, per device, in training and prediction.
    """

    size: Positive
    accumulation: Positive = 1
    max_tokens: Positive | None = None
    group_by_length: bool = False
    sampler: Literal["shuffle", "balanced"] = "shuffle"
    balance: str = "label"
    balance_within: tuple[str, ...] = ()
    class_weights: dict[str, Annotated[float, Field(gt=0)]] = {}
    max_length: Positive | None = None
    max_target_tokens: Positive | None = None
    overlong: Literal["error", "drop"] = "error"
    loss_reduction: Literal["token", "sample"] = "token"
    share_images: bool = False
    workers: Annotated[int, Field(ge=0)] = 2

    @model_validator(mode="after")
    def _something_to_share(self) -> Batch:
        if self.share_images and self.size == 1 and self.max_tokens is None:
            raise ValueError("share_images shares nothing between passes of one sample: raise size, or set max_tokens")
        return self


class Train(Section):
    """Optimiser, schedule, precision and bookkeeping.

    Attributes:
        optimizer: `muon` uses Muon for the matrices of the blocks and AdamW for the rest.
        learning_rate: Peak learning rate.
        schedule: `cosine` falls to `min_learning_rate_ratio` of the peak, `linear` to 0.
        warmup_steps: Steps of linear warm-up.
        min_learning_rate_ratio: Floor of the cosine, as a share of the peak.
        epochs: Passes over the training records; give this or `max_steps`.
        max_steps: Optimiser steps in all.
        precision: Autocast type; `fp32` computes without autocast.
        gradient_checkpointing: Recomputes activations in the backward pass to save memory.
        seed: Seed of initialisation, order and dropout.
        log_steps: Steps between log lines.
        save_steps: Steps between checkpoints; `null` saves after each epoch.
        validate_steps: Steps between validations; `null` means at each checkpoint. A new best is always saved.
        keep_checkpoints: How many checkpoints stay on disk; the best one always does.
    """

    optimizer: Literal["adamw", "muon"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0)]
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    betas: tuple[Fraction, Fraction] = (0.9, 0.999)
    epsilon: Annotated[float, Field(gt=0)] = 1e-8
    clip_norm: Annotated[float, Field(gt=0)] = 1.0
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    min_learning_rate_ratio: Fraction = 0.0
    epochs: Annotated[float, Field(gt=0)] | None = None
    max_steps: Positive | None = None
    precision: Literal["bf16", "fp16", "fp32"] = "bf16"
    gradient_checkpointing: bool = False
    seed: int = 0
    log_steps: Positive = 10
    save_steps: Positive | None = None
    validate_steps: Positive | None = None
    keep_checkpoints: Positive = 2

    @model_validator(mode="after")
    def _one_length(self) -> Train:
        if (self.epochs is None) == (self.max_steps is None):
            raise ValueError("give exactly one of epochs and max_steps")
        if self.min_learning_rate_ratio and self.schedule != "cosine":
            raise ValueError(f"min_learning_rate_ratio needs schedule: cosine, not {self.schedule}")
        return self


class Selection(Section):
    """Which checkpoint becomes the model.

    Attributes:
        by: `loss` takes the lowest validation loss; `score` generates answers to validation questions and takes the
            highest selection score of the benchmark's scorer; `last` takes the last weights.
        profile: Profile whose rule `score` follows; `published` needs a benchmark with a published scorer.
        limit: Validation records that are answered, rounded up to whole patients or volumes; `null` takes all.
        patience: Stop after so many validations without a new best; `null` never stops early.
    """

    by: Literal["loss", "score", "last"] = "loss"
    profile: Literal["corrected", "published"] = "corrected"
    limit: Positive | None = None
    patience: Positive | None = None


class Decoding(Section):
    """Greedy decoding.

    Attributes:
        max_new_tokens: Limit on the answer; rows that reach it say `finish: length`.
        batch_size: Questions that are answered at a time.
        share_images: What prompts about the same images have in common is computed once (Qwen3-VL with attention
            `sdpa`); texts stay the same but for ties that rounding decides. PaliGemma always shares its vision features.
        valid_boxes: Location tokens are written in whole boxes only that lie on a view, and a box is begun only where
            the answer form has a place for it and `max_new_tokens` leaves room; every other token is chosen as
            without. For codecs on a canvas.
        mask_decoder: File with the weights of PaliGemma's mask decoder (`vae-oid.npz` as published, or safetensors): predictions
            then hold the masks that the codes of `seg_tokens` stand for, in native pixels; `null` leaves boxes alone.
    """

    max_new_tokens: Positive = 128
    batch_size: Positive = 8
    share_images: bool = True
    valid_boxes: bool = False
    mask_decoder: str | None = None
