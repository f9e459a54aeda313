"""One forward and backward pass of a head with its loss; `perf.heads` starts it in a process of its own."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from perf.heads import COMPARE, HeadSize

if TYPE_CHECKING:
    from torch import Tensor

IGNORE = -100


@dataclass(frozen=True, slots=True)
class _Inputs:
    """Hidden states float32[B, L, H] and head float32[V, H], both with gradient; labels int64[B, L]."""

    hidden: Tensor
    head: Tensor
    labels: Tensor


def run_side(side: str, size: HeadSize) -> None:
    """Measures one side, or compares both, and prints the result as JSON."""
    if side == COMPARE:
        print(json.dumps(_compare(size)))
        return
    # Threads and libraries start before the clock does.
    _pass(side, _inputs(replace(size, vocabulary=min(size.vocabulary, 64))))
    inputs = _inputs(size)
    before = _peak_mib()
    start = time.perf_counter()
    _pass(side, inputs)
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "peak_mib": _peak_mib() - before}))


def _inputs(size: HeadSize) -> _Inputs:
    import torch

    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(size.batch, size.length, size.hidden, generator=generator).requires_grad_()
    head = torch.randn(size.vocabulary, size.hidden, generator=generator).mul_(size.hidden**-0.5).requires_grad_()
    labels = torch.full((size.batch, size.length), IGNORE)
    shape = (size.batch, size.supervised)
    labels[:, -size.supervised :] = torch.randint(size.vocabulary, shape, generator=generator)
    return _Inputs(hidden, head, labels)


def _pass(side: str, inputs: _Inputs) -> float:
    """Loss, after the backward pass has left its gradients in hidden states and head."""
    from torch.nn import functional

    from train.loss import summed_loss, supervision

    if side == "full":
        logits = functional.linear(inputs.hidden, inputs.head).float()
        shifted = functional.pad(inputs.labels, (0, 1), value=IGNORE)[:, 1:]
        loss = functional.cross_entropy(logits.flatten(0, 1), shifted.flatten(), ignore_index=IGNORE)
        del logits
    else:
        keep = functional.pad(inputs.labels[:, 1:] != IGNORE, (0, 1))
        logits = functional.linear(inputs.hidden[keep], inputs.head)
        targets, _ = supervision(inputs.labels)
        loss = summed_loss(logits, targets, inputs.hidden.new_ones(len(targets))) / len(targets)
        del logits
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.item()


def _compare(size: HeadSize) -> dict[str, float]:
    """Relative differences of the loss, and of all gradients as one vector (norm of the difference over the norm)."""
    full, ours = _inputs(size), _inputs(size)
    losses = _pass("full", full), _pass("targets", ours)
    squared = norm = 0.0
    for reference, other in ((full.hidden.grad, ours.hidden.grad), (full.head.grad, ours.head.grad)):
        assert reference is not None
        assert other is not None
        norm += float(reference.square().sum())
        squared += float(other.sub_(reference).square_().sum())
    return {"loss": abs(losses[1] / losses[0] - 1), "gradients": (squared / norm) ** 0.5}


def _peak_mib() -> float:
    """Peak resident memory of this process so far."""
    from train.device_memory import peak_resident

    return peak_resident() / 1024**2
