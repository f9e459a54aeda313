"""Cross-entropy on the supervised tokens only, equal under any split of a step into parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from collators.qwen3_vl import IGNORE

LossFunction = Callable[..., Tensor]


class HasLogits(Protocol):
    """A model output."""

    logits: Tensor


def supervised_loss(reduction: str) -> LossFunction:
    """The loss for the Trainer's `compute_loss_func` hook.

    The model returns logits at supervised positions only (`logits_to_keep` of the batch), so they are
    float[S, V] for S supervised tokens. `token` averages over the tokens of the whole optimiser step,
    `sample` over its samples after averaging within each. The divisor comes from the whole step, over
    all accumulation parts and processes, hence the gradient does not depend on how it was split.
    """

    def loss(outputs: HasLogits, labels: Tensor, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        targets = labels[:, 1:]
        mask = targets != IGNORE
        losses = functional.cross_entropy(outputs.logits.float(), targets[mask], reduction="none")
        if reduction == "sample":
            counts = mask.sum(dim=1, keepdim=True).expand_as(mask)[mask]
            losses = losses / counts
        items = num_items_in_batch
        if items is None:
            items = int(mask.sum()) if reduction == "token" else len(labels)
        return losses.sum() / items

    return loss


def one_per_sample(labels: Tensor) -> Tensor:
    """Labels with only the first supervised token of each row kept, so that counting them counts samples."""
    first = (labels != IGNORE).int().argmax(dim=1, keepdim=True)
    kept = torch.full_like(labels, IGNORE)
    return kept.scatter(1, first, labels.gather(1, first))
