"""Kept vision features where processes hold the weights together, and where a run is killed."""

from __future__ import annotations

import contextlib
import random
import subprocess
import time

import pytest
import torch
from safetensors.torch import load_file

from collators.image_sets import ImageSets
from models import qwen3_vl_features
from models.qwen3_vl import load_model
from models.vision_sets import SetEncoder
from models.vision_store import DiskStore, MemoryStore
from tests.groups import grouped_records, write_groups
from tests.launching import complete, kill_tree, start
from tests.sharding import FSDP, assert_same_run, deepspeed, trained
from tests.train.runs import silent
from train.run import run

# Two of these in a pass of a process: its image sets are none (a black one is shown), one or two.
SIZES = (3, 1, 0, 2, 0, 2, 0, 1)


@pytest.fixture(scope="module")
def words(tiny, tmp_path_factory):
    """Overrides that every run here shares: two epochs and a bit."""
    records = [*grouped_records(SIZES), *grouped_records((2, 1, 0), split="val")]
    data = write_groups(tmp_path_factory.mktemp("groups"), records)
    return [
        "prompt.template=plain",
        "codec=plain",
        f"data.dataset={data}",
        f"model.checkpoint={tiny}",
        "adapter.dropout=0.0",
        "train.learning_rate=1.0e-3",
        "train.max_steps=7",
        "train.save_steps=3",
        "train.log_steps=1",
        "train.warmup_steps=0",
        "batch.workers=0",
    ]


class Kept:
    """The part of a vision cache that an encoder uses."""

    def __init__(self):
        self.store = MemoryStore(2**30, silent)
        self.get = self.store.get
        self.put = self.store.put


@pytest.mark.parametrize("most", [2, 5])
def test_the_tower_runs_as_often_as_in_the_process_with_most_to_encode(most, make_recipe, monkeypatch):
    """With two sets to encode here; what else is run leaves no trace."""
    model = load_model(make_recipe().model).eval()
    blank = qwen3_vl_features.blank(model.model)
    rows = {name: len(values) for name, values in blank.items()}
    sets = ImageSets(
        keys=("a", "b", "c"),
        shown=(2, 0, 1, 0),
        features={},
        tokens=(0, 0, 0),
        pixels={name: torch.cat([values, values + (name == "pixel_values")]) for name, values in blank.items()},
        rows=(rows, {}, rows),
    )
    kept = Kept()
    kept.put("b", qwen3_vl_features.encode(model.model, {**blank, "pixel_values": blank["pixel_values"] - 1}))
    expected = SetEncoder(model, qwen3_vl_features, kept)(sets)["image"]
    calls = []
    real = qwen3_vl_features.encode
    monkeypatch.setattr(qwen3_vl_features, "encode", lambda *a: calls.append(1) or real(*a))
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda counts, op: counts.fill_(most))
    again = Kept()
    again.put("b", kept.get("b"))
    found = SetEncoder(model, qwen3_vl_features, again, lockstep=True)(sets)["image"]
    assert len(calls) == most
    assert all(mine.equal(theirs) for mine, theirs in zip(found.pooler_output, expected.pooler_output, strict=True))
    assert again.store.counts.bytes == kept.store.counts.bytes
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda counts, op: None)
    calls.clear()
    SetEncoder(model, qwen3_vl_features, again, lockstep=True)(sets)
    assert not calls  # all is kept, here and elsewhere


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "disk"])
def test_zero3_trains_with_kept_features_as_one_process_without(kind, words, make_recipe, tmp_path):
    run(make_recipe(*words, "batch.size=4"), tmp_path / "one", silent)
    own = ["batch.size=2", f"vision_cache={kind}", "train.gradient_checkpointing=true"]
    folder = [f"vision_cache_dir={tmp_path / 'features'}"] if kind == "disk" else []
    trained(deepspeed(tmp_path, 3), [*words, *own, *folder], tmp_path / "two")
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_fsdp_trains_with_kept_features_as_one_process_without(words, make_recipe, tmp_path):
    run(make_recipe(*words, "batch.size=4"), tmp_path / "one", silent)
    more = {"module": "tests.fsdp_on_cpu", "ACCELERATE_TORCH_DEVICE": "cpu"}
    trained(FSDP, [*words, "batch.size=2", "vision_cache=memory"], tmp_path / "two", **more)
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("processes", [1, 2])
def test_a_run_killed_while_it_fills_the_cache_continues_to_the_same_weights(processes, words, tmp_path):
    rng = random.Random(processes)
    features = tmp_path / "features"
    common = [*words, f"batch.size={4 // processes}", "batch.workers=1", "train.save_steps=1", "vision_cache=disk"]
    straight = [*common, f"vision_cache_dir={tmp_path / 'other'}", "--out", tmp_path / "straight"]
    assert complete("train", processes, "demo/lora", *straight)[0] == 0
    killed = [*common, f"vision_cache_dir={features}", "--out", tmp_path / "killed"]
    for number in range(6):
        process = start("train", processes, "demo/lora", *killed)
        before = set(features.rglob("*.*"))
        while process.poll() is None and set(features.rglob("*.*")) <= before and number < 3:
            time.sleep(0.001)
        if number >= 3:  # in later steps, which read
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=rng.uniform(6, 12))
        kill_tree(process)
        store = DiskStore(features, 2**30, lambda line: pytest.fail(line))
        assert all(store.get(path.stem) is not None for path in features.rglob("*.safetensors"))
    status, printed = complete("train", processes, "demo/lora", *killed)
    assert status == 0, printed
    found, wanted = (
        load_file(next((tmp_path / name / "model").glob("*.safetensors"))) for name in ("killed", "straight")
    )
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(wanted[name]) for name in wanted)
