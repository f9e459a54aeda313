"""A run continued in a later pass over the data sees the samples that it would have seen."""

from __future__ import annotations

import pytest
import torch

from benchmarks.dataset import load_info, read_records, write_dataset
from collators.qwen3_vl import Qwen3VLCollator
from tests.train.runs import AtStep, Stopped, silent, stop, weights
from train import callbacks
from train.run import run


@pytest.fixture(scope="module")
def recipe(make_recipe, phantom_data, tmp_path_factory):
    """10 samples in steps of 2, three passes, a checkpoint after every fourth step."""
    data, info = tmp_path_factory.mktemp("ten") / "data", load_info(phantom_data)
    records = list(read_records(phantom_data, "train"))[:10]
    root = phantom_data.parent / "release"
    write_dataset(data, records, name="ten", benchmark=info.benchmark, reader=info.reader, image_root=root, sources={})
    batch = ("batch.size=2", "train.epochs=3", "train.max_steps=null", "train.save_steps=4", "adapter.dropout=0.1")
    return make_recipe(f"data.dataset={data}", "data.validation=null", *batch)


@pytest.fixture
def shown(monkeypatch):
    """The ids of every batch, in the order in which they were put together."""
    ids: list[tuple[str, ...]] = []
    real = Qwen3VLCollator.__call__

    def noted(self, records):
        ids.append(tuple(record.id for record in records))
        return real(self, records)

    monkeypatch.setattr(Qwen3VLCollator, "__call__", noted)
    return ids


def test_a_run_continued_in_any_pass_sees_the_same_samples(recipe, shown, tmp_path, monkeypatch):
    """Pitfall 25: killed after steps 1, 5, 8 and 14 of 15."""
    straight = weights(run(recipe, tmp_path / "straight", silent))
    expected = shown.copy()
    assert len(expected) == 15
    passes = [expected[start : start + 5] for start in (0, 5, 10)]
    assert len({tuple(sorted(sum(ids, ()))) for ids in passes}) == 1  # each shows every sample once
    assert passes[0] != passes[1] != passes[2]  # and in an order of its own
    for killed, saved in ((1, 0), (5, 4), (8, 8), (14, 12)):
        out = tmp_path / str(killed)
        with monkeypatch.context() as patch:
            patch.setattr(callbacks, "StopOnNaN", lambda after=killed: AtStep(after + 1, stop))
            with pytest.raises(Stopped):
                run(recipe, out, silent)
        shown.clear()
        resumed = weights(run(recipe, out, silent))
        assert shown == expected[saved:]
        assert all(torch.equal(resumed[key], straight[key]) for key in straight)
