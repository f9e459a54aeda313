"""The process group, set up once and the same way for training and prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from accelerate import PartialState


def process_state() -> PartialState:
    """State of this process among those of `accelerate launch`.

    Without a GPU the state must be told so: otherwise every process believes it is alone.
    """
    from accelerate import PartialState

    return PartialState() if torch.cuda.is_available() else PartialState(cpu=True)
