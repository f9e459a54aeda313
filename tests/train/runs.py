"""What tests ask of run folders, and a way to stop a run in the middle of writing one of its files."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback


class Stopped(Exception):
    """Stands for a kill."""


def stop():
    """Stops a run."""
    raise Stopped


class AtStep(TrainerCallback):
    """Does something when a step begins."""

    def __init__(self, step, action):
        self.step = step
        self.action = action

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step + 1 == self.step:
            self.action()


def silent(line: str) -> None:
    """Takes the place of print."""


def curve(out):
    """Step and value of every point of the training loss in TensorBoard."""
    events = EventAccumulator(str(out / "tensorboard"), size_guidance={"scalars": 0}).Reload()
    return [(event.step, event.value) for event in events.Scalars("train/loss")]


def weights(folder):
    """The tensors of a model folder."""
    return load_file(next(folder.glob("*.safetensors")))


def tear(patch, owner, name, argument, ending):
    """Makes `owner.name`, which writes the file given as its argument number `argument`, stop in the middle.

    Args:
        patch: pytest's monkeypatch.
        owner: Module or class that holds the function.
        name: Its name there.
        argument: Position of the path among its arguments.
        ending: End of the path at which to stop; other files are written as usual.
    """
    real = getattr(owner, name)

    def torn(*arguments, **keywords):
        path = Path(arguments[argument])
        real(*arguments, **keywords)
        if path.as_posix().endswith(ending):
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise Stopped

    patch.setattr(owner, name, torn)


def stop_before_rename(patch, owner, ending):
    """Makes `owner.write_atomic` stop when a file is half written under its temporary name."""
    real = owner.write_atomic

    def torn(path, data):
        if path.as_posix().endswith(ending):
            path.with_name(f".{path.name}.1.part").write_bytes(data[: len(data) // 2])
            raise Stopped
        real(path, data)

    patch.setattr(owner, "write_atomic", torn)
