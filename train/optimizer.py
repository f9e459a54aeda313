"""Muon for the matrices of the blocks, AdamW for everything else, behind one optimiser object.

Muon: Jordan et al., 2024, as shipped in `torch.optim.Muon`; the update is scaled to AdamW's size
(`match_rms_adamw`), so that one learning rate serves both.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, overload

import torch
from torch import nn

from recipes.running import Train


class MuonWithAdamW(torch.optim.Optimizer):
    """Two optimisers that share parameter groups and state with this one, so that saving just works."""

    def __init__(self, matrices: list[nn.Parameter], others: list[nn.Parameter], train: Train) -> None:
        decay = train.weight_decay
        self._muon = torch.optim.Muon(
            matrices, lr=train.learning_rate, momentum=0.95, weight_decay=decay, adjust_lr_fn="match_rms_adamw"
        )
        self._adamw = torch.optim.AdamW(
            others, lr=train.learning_rate, betas=train.betas, eps=train.epsilon, weight_decay=decay
        )
        super().__init__([*self._muon.param_groups, *self._adamw.param_groups], {})
        self._share()

    def _share(self) -> None:
        self._muon.param_groups, self._adamw.param_groups = [self.param_groups[0]], [self.param_groups[1]]
        self._muon.state = self._adamw.state = self.state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads and links the two optimisers to the loaded state."""
        super().load_state_dict(state_dict)
        self._share()

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step of both."""
        loss = closure() if closure is not None else None
        self._muon.step()  # type: ignore[no-untyped-call]
        self._adamw.step()
        return loss


def muon_with_adamw(model: nn.Module, train: Train) -> MuonWithAdamW:
    """Splits the trainable parameters: matrices inside blocks and mergers to Muon, the rest to AdamW."""
    matrices: list[nn.Parameter] = []
    others: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        block = any(part in name for part in (".layers.", ".blocks.", "merger"))
        (matrices if block and parameter.dim() == 2 else others).append(parameter)
    return MuonWithAdamW(matrices, others, train)
