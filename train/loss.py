"""Cross-entropy on the supervised tokens only, equal under any split of a step into parts."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from collators.base import IGNORE


def summed_loss(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """The weighted loss of a batch, not yet divided by what the whole step holds.

    The divisor (`train.plan.Step.items`) comes from the whole step, over all its forward passes and processes, hence
    the gradient does not depend on how the step was split.

    Args:
        logits: float[..., V], S vectors at the positions that predict the S supervised tokens only (`logits_to_keep`
            of the batch): no `[B, L, V]` logits exist.
        targets: int64[S], the supervised tokens.
        weights: float[S], from `token_weights`.

    Returns:
        A scalar in float32.
    """
    losses = functional.cross_entropy(logits.flatten(0, -2).float(), targets, reduction="none")
    return (losses * weights).sum()


def token_weights(owners: Tensor, weights: Tensor, reduction: Literal["token", "sample"]) -> Tensor:
    """What the loss of each supervised token is multiplied by.

    `token` sums over the supervised tokens, `sample` over the samples after averaging within each.

    Args:
        owners: int64[S], number of the sample that each supervised token belongs to.
        weights: float[B], weight of each sample; 0 for a filler.
        reduction: The recipe's `batch.loss_reduction`.

    Returns:
        float[S].
    """
    if reduction == "sample":
        weights = weights / torch.bincount(owners, minlength=len(weights))
    return weights[owners]


def supervision(labels: Tensor) -> tuple[Tensor, Tensor]:
    """The supervised tokens of a padded batch and the row of each: int64[S] both.

    Args:
        labels: int64[B, L], -100 outside the targets.
    """
    mask = labels[:, 1:] != IGNORE
    return labels[:, 1:][mask], mask.nonzero()[:, 0]
