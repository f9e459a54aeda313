"""Reading a checkpoint to continue from: tensors and plain values only, whatever library opens it."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from models.processes import uses_deepspeed
from train.trainer import TrainingError

# DeepSpeed asks torch to unpickle whatever a file holds; this setting of torch overrules it.
_FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


@contextmanager
def reading(checkpoint: Path | None) -> Iterator[None]:
    """Lets torch read tensors and plain values only, and turns its refusals into messages.

    Raises:
        TrainingError: A file of the checkpoint is cut, or a pickle of something else.
    """
    environment = os.environ  # noqa: TID251 - a setting of torch's, not one of ours
    before = environment.get(_FORCE)
    environment[_FORCE] = "1"
    try:
        with torch.serialization.safe_globals(_deepspeed_classes()):
            yield
    except pickle.UnpicklingError as error:
        raise TrainingError(
            f"a file of the checkpoint holds other than tensors and plain values: {str(error).splitlines()[0]}",
            where=str(checkpoint),
            fix="the checkpoint was tampered with: remove it, or start anew with --fresh",
        ) from error
    except RuntimeError as error:
        if "PytorchStreamReader" not in str(error):
            raise
        raise TrainingError(
            f"a file of the checkpoint is cut or damaged: {error}",
            where=str(checkpoint),
            fix="remove the checkpoint to continue from the one before, or start anew with --fresh",
        ) from error
    finally:
        if before is None:
            del environment[_FORCE]
        else:
            environment[_FORCE] = before


def _deepspeed_classes() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """The plain classes that DeepSpeed's own states are made of."""
    if not uses_deepspeed():
        return []
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    return [LossScaler, DynamicLossScaler, ZeroStageEnum, fragment_address]
