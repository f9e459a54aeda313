"""`python -m train` with FSDP on CPU processes: accelerate is told that they are GPUs, else it leaves FSDP out.

A stand-in for what only GPUs have; started with `ACCELERATE_TORCH_DEVICE=cpu`.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType

from recipes.errors import run_command
from train import launch
from train.__main__ import main
from train.run import GroundedTrainer

start = PartialState.__init__
PartialState.__init__ = lambda self, cpu=False, **words: start(self, **words)
PartialState._prepare_backend = lambda *_: ("gloo", DistributedType.MULTI_GPU)
launch.process_state = lambda: SimpleNamespace(device=torch.device("cuda"), num_processes=2)
step = GroundedTrainer.training_step


def checked_step(trainer, model, *arguments):
    """A training step, which only FSDP takes with distributed tensors."""
    assert {type(parameter).__name__ for parameter in model.parameters()} == {"DTensor"}
    return step(trainer, model, *arguments)


GroundedTrainer.training_step = checked_step
sys.exit(run_command(main))
