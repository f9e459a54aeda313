"""What may be unpickled from a checkpoint, also by a library that asks for everything."""

from __future__ import annotations

import os

import pytest
import torch

from train.reading import reading
from train.trainer import TrainingError

FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"


class Mark:
    """Creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


@pytest.mark.parametrize("zipped", [True, False])
def test_no_library_may_unpickle_everything(zipped, tmp_path):
    """Pitfall 32: DeepSpeed calls torch so, and may write the older form."""
    file, marker = tmp_path / "states.pt", tmp_path / "marker"
    torch.save({"step": Mark(marker)}, file, _use_new_zipfile_serialization=zipped)
    with pytest.raises(TrainingError, match="other than tensors and plain values"), reading(tmp_path):
        torch.load(file, weights_only=False)
    assert not marker.exists()
    torch.load(file, weights_only=False)
    assert marker.exists()


@pytest.mark.parametrize("before", [None, "0"])
def test_the_setting_is_put_back(before, tmp_path, monkeypatch):
    if before is None:
        monkeypatch.delenv(FORCE, raising=False)
    else:
        monkeypatch.setenv(FORCE, before)
    with reading(None):
        assert os.environ[FORCE] == "1"
    assert os.environ.get(FORCE) == before


@pytest.mark.slow
def test_what_deepspeed_writes_is_read(tmp_path, monkeypatch):
    pytest.importorskip("deepspeed")
    from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
    from deepspeed.runtime.zero.config import ZeroStageEnum
    from deepspeed.utils.tensor_fragment import fragment_address

    monkeypatch.setenv("ACCELERATE_USE_DEEPSPEED", "true")
    states = {
        "zero_stage": ZeroStageEnum.weights,
        "loss_scaler": LossScaler(scale=1.0),
        "fragment": fragment_address(numel=3, start=1),
        "moment": torch.ones(3),
    }
    torch.save(states, tmp_path / "states.pt")
    with reading(tmp_path):
        read = torch.load(tmp_path / "states.pt", weights_only=False)
    assert read["zero_stage"] == states["zero_stage"]
    assert read["fragment"] == states["fragment"]
    assert read["loss_scaler"].loss_scale == 1.0
    torch.save(DynamicLossScaler(4, 8, 1, 1, consecutive_hysteresis=False), tmp_path / "scaler.pt")
    with reading(tmp_path):
        assert torch.load(tmp_path / "scaler.pt", weights_only=False).loss_scale == 4
