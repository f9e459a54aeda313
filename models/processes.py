"""The process group, set up once and the same way for training and prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from recipes.schema import Model

if TYPE_CHECKING:
    from accelerate import PartialState


def process_state() -> PartialState:
    """State of this process among those of `accelerate launch`; `device.type` says what it computes on.

    Without a GPU, or where the launch settings say `use_cpu`, the state must be told so: otherwise every
    process believes it is alone. DeepSpeed sets its own groups up and breaks if told.
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available()
    return PartialState(cpu=True) if cpu and not uses_deepspeed() else PartialState()


def quantized_device_map(model: Model) -> dict[str, int] | None:
    """Where weights in 4 bits go while they are loaded: this process's GPU; `None` where nothing is special."""
    state = process_state()
    on_gpu = model.quantization != "none" and state.device.type == "cuda"
    return {"": state.local_process_index} if on_gpu else None


def uses_deepspeed() -> bool:
    """Whether `accelerate launch` was asked for DeepSpeed."""
    from accelerate.utils import parse_flag_from_env

    return bool(parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"))
