"""Memory of this process's device: what is free before a run, and what the run took at its peak."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models.processes import process_state, uses_deepspeed, uses_fsdp
from train.memory import Launch

if TYPE_CHECKING:
    from accelerate import PartialState


def current_launch() -> Launch:
    """Processes of this launch and what they share; ZeRO-1 counts as ZeRO-2, which shares more."""
    from accelerate.utils import DeepSpeedPlugin

    processes = int(process_state().num_processes)
    if uses_deepspeed():
        return Launch(processes, "zero3" if DeepSpeedPlugin().zero_stage == 3 else "zero2")
    if processes == 1:
        return Launch()
    return Launch(processes, "fsdp" if uses_fsdp() else "ddp")


def memory_for_run() -> int:
    """Bytes that this process may use: free ones and those it holds already.

    On a CPU the machine's memory is shared out evenly over the processes.
    """
    state = process_state()
    if state.device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(state.device)
        return int(free + torch.cuda.memory_reserved(state.device))
    import psutil  # type: ignore[import-untyped]

    return int(psutil.virtual_memory().available // state.num_processes) + _resident()


class PeakMemory:
    """Peak memory of this process from now on; make one before the model is loaded."""

    def __init__(self) -> None:
        self._device = _cuda_device(process_state())
        self._start = _resident()
        if self._device is not None:
            torch.cuda.reset_peak_memory_stats(self._device)

    def measured(self) -> int:
        """Bytes at the peak so far.

        On a GPU what PyTorch's tensors took; on a CPU the growth of the process, with everything in it.
        """
        if self._device is not None:
            return torch.cuda.max_memory_allocated(self._device)
        return max(peak_resident() - self._start, 0)


def peak_resident() -> int:
    """Most bytes of this process that were in memory at once, since it began."""
    status = Path("/proc/self/status")
    if status.is_file():
        # `getrusage` would begin with what the process that started this one held.
        lines = status.read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _cuda_device(state: PartialState) -> torch.device | None:
    return state.device if state.device.type == "cuda" else None


def _resident() -> int:
    """Bytes of this process in memory."""
    import psutil

    return int(psutil.Process().memory_info().rss)
