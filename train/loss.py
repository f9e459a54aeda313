"""Cross-entropy on the supervised tokens only, equal under any split of a step into parts."""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from torch.nn import functional

from collators.base import IGNORE


def summed_loss(logits: Tensor, labels: Tensor, weights: Tensor, reduction: Literal["token", "sample"]) -> Tensor:
    """The weighted loss of a batch, not yet divided by what the whole step holds.

    `token` sums over the supervised tokens, `sample` over the samples after averaging within each. The divisor
    (`train.plan.Step.items`) comes from the whole step, over all its forward passes and processes, hence the
    gradient does not depend on how the step was split.

    Args:
        logits: float[S, V], at the positions that predict the S supervised tokens only (`logits_to_keep` of the
            batch): no `[B, L, V]` logits exist.
        labels: int64[B, L], -100 outside the targets.
        weights: float[B], weight of each sample; 0 for a filler.
        reduction: The recipe's `batch.loss_reduction`.

    Returns:
        A scalar in float32.
    """
    targets = labels[:, 1:]
    mask = targets != IGNORE
    losses = functional.cross_entropy(logits.float(), targets[mask], reduction="none")
    scale = weights.to(losses.dtype)[:, None].expand_as(mask)
    if reduction == "sample":
        scale = scale / mask.sum(dim=1, keepdim=True)
    return (losses * scale[mask]).sum()
