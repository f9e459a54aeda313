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
    process believes it is alone. Under DeepSpeed it must be told the backend instead (`cpu_backend`).
    """
    from accelerate import PartialState
    from accelerate.utils import parse_flag_from_env

    if (backend := cpu_backend()) is not None:
        return PartialState(backend=backend)
    cpu = parse_flag_from_env("ACCELERATE_USE_CPU") or not torch.cuda.is_available()
    return PartialState(cpu=True) if cpu else PartialState()


def cpu_backend() -> str | None:
    """The backend to name to accelerate for DeepSpeed without a GPU; `None` where it finds one by itself.

    Told that it is on a CPU, accelerate would wrap the model for DDP; told nothing, every process believes it is alone.
    """
    return "gloo" if uses_deepspeed() and not torch.cuda.is_available() else None


def quantized_device_map(model: Model) -> dict[str, int] | None:
    """Where weights in 4 bits go while they are loaded: this process's GPU; `None` where nothing is special."""
    state = process_state()
    on_gpu = model.quantization != "none" and state.device.type == "cuda"
    return {"": state.local_process_index} if on_gpu else None


def uses_deepspeed() -> bool:
    """Whether `accelerate launch` was asked for DeepSpeed."""
    from accelerate.utils import parse_flag_from_env

    return bool(parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"))


def uses_fsdp() -> bool:
    """Whether `accelerate launch` was asked for FSDP."""
    from accelerate.utils import parse_flag_from_env

    return bool(parse_flag_from_env("ACCELERATE_USE_FSDP"))
