"""Whole runs with shared images: the same history and weights as without, however a step is cut and by however many processes."""

from __future__ import annotations

import shutil

import pytest
import torch

from tests.groups import grouped_records, write_groups
from tests.sharding import DDP, FSDP, assert_same_run, deepspeed, trained, weights
from tests.train.runs import silent
from train.run import run

SIZES = (5, 1, 2, 0, 9, 1, 1)  # 20 samples


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """20 training samples of six image sets and one text, 7 validation samples of two sets."""
    records = [*grouped_records(SIZES), *grouped_records((5, 2), split="val")]
    return write_groups(tmp_path_factory.mktemp("groups"), records)


def words(data, checkpoint, *more):
    return [
        "prompt.template=plain",
        "codec=plain",
        f"data.dataset={data}",
        f"model.checkpoint={checkpoint}",
        "train.learning_rate=1.0e-3",
        "train.max_steps=3",
        "train.save_steps=3",
        "train.log_steps=1",
        "train.warmup_steps=0",
        "train.clip_norm=1.0e+9",
        "adapter.dropout=0.0",
        "batch.workers=0",
        *more,
    ]


@pytest.mark.parametrize("reduction", ["token", "sample"])
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_steps_of_whole_image_sets_train_as_their_samples_do(kind, reduction, data, tiny, make_recipe, tmp_path):
    """Every step holds all samples, so that shared and separate steps are the same samples; the validation loss is shared too."""
    common = words(data, tiny, f"adapter.kind={kind}", f"batch.loss_reduction={reduction}")
    apart, shared, cut = (tmp_path / name for name in ("apart", "shared", "cut"))
    run(make_recipe(*common, "batch.size=1", "batch.accumulation=20"), apart, silent)
    run(make_recipe(*common, "batch.size=20", "batch.share_images=true"), shared, silent)
    tokens = ["batch.size=20", "batch.share_images=true", "batch.max_tokens=120", "train.gradient_checkpointing=true"]
    run(make_recipe(*common, *tokens), cut, silent)
    assert_same_run(shared, apart)
    assert_same_run(cut, apart)


@pytest.mark.parametrize("sampler", ["shuffle", "balanced"])
def test_a_continued_run_is_the_uninterrupted_one(sampler, phantom_data, tiny, make_recipe, tmp_path):
    """With dropout; bit for bit."""
    recipe = make_recipe(
        f"data.dataset={phantom_data}",
        f"model.checkpoint={tiny}",
        f"batch.sampler={sampler}",
        "batch.share_images=true",
        "batch.size=6",
        "batch.accumulation=2",
        "adapter.dropout=0.1",
        "train.max_steps=8",
        "train.save_steps=3",
        "train.keep_checkpoints=9",
    )
    straight, out, lines = tmp_path / "straight", tmp_path / "out", []
    run(recipe, straight, silent)
    shutil.copytree(straight, out)
    for path in (out / "model", *(out / f"checkpoints/checkpoint-{step}" for step in (6, 8))):
        shutil.rmtree(path)
    (out / "manifest.json").unlink()
    run(recipe, out, lines.append)
    assert "continuing from checkpoint-3" in lines
    assert_same_run(out, straight, tolerance=0)
    assert all(torch.equal(value, weights(straight)[name]) for name, value in weights(out).items())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora", "full"])
def test_zero3_shares_images_as_one_process(kind, data, tiny, make_recipe, tmp_path):
    """Image sets fall to one process or the other, a text to one alone; recomputed activations."""
    common = words(data, tiny, f"adapter.kind={kind}", "train.gradient_checkpointing=true")
    run(make_recipe(*common, "batch.size=1", "batch.accumulation=20"), tmp_path / "one", silent)
    shared = ["batch.size=5", "batch.accumulation=2", "batch.share_images=true"]
    trained(deepspeed(tmp_path, 3), [*common, *shared], tmp_path / "two")
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lora, vision: true", "full"])
def test_zero3_shares_canvases_as_one_process(kind, tiny_paligemma, make_paligemma_recipe, tmp_path):
    """One process has more of them in a pass than the other; the tower is trained."""
    records = [*grouped_records((5, 1, 2, 9, 1, 1, 1), images=1), *grouped_records((5, 2), images=1, split="val")]
    data = write_groups(tmp_path / "data", records)
    common = words(data, tiny_paligemma(1), f"adapter={{kind: {kind}, dropout: 0.0}}", "canvas={size: 32}")
    run(make_paligemma_recipe(*common, "batch.size=1", "batch.accumulation=20"), tmp_path / "one", silent)
    shared = ["batch.size=5", "batch.accumulation=2", "batch.share_images=true"]
    trained(deepspeed(tmp_path, 3), [*common, *shared], tmp_path / "two", recipe="demo/paligemma_lora")
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_fsdp_shares_images_as_one_process(data, tiny, make_recipe, tmp_path):
    common = words(data, tiny, "adapter.kind=full")
    run(make_recipe(*common, "batch.size=1", "batch.accumulation=20"), tmp_path / "one", silent)
    trained(
        FSDP,
        [*common, "batch.size=10", "batch.share_images=true"],
        tmp_path / "two",
        module="tests.fsdp_on_cpu",
        ACCELERATE_TORCH_DEVICE="cpu",
    )
    assert_same_run(tmp_path / "two", tmp_path / "one")


def test_two_processes_share_images_as_one(data, tiny, make_recipe, tmp_path):
    common = words(data, tiny)
    run(make_recipe(*common, "batch.size=1", "batch.accumulation=20"), tmp_path / "one", silent)
    trained(DDP, [*common, "batch.size=10", "batch.share_images=true"], tmp_path / "two")
    assert_same_run(tmp_path / "two", tmp_path / "one")


@pytest.mark.parametrize("sampler", ["shuffle", "balanced"])
def test_order_of_steps_does_not_depend_on_how_they_are_cut(sampler, phantom_data, tiny, make_recipe, tmp_path):
    """Ten steps over several passes of the data: the same samples a step, packed in one pass or in several."""
    common = [
        f"data.dataset={phantom_data}",
        f"model.checkpoint={tiny}",
        f"batch.sampler={sampler}",
        "batch.share_images=true",
        "train.max_steps=10",
        "train.save_steps=10",
        "data.validation=null",
        "adapter.dropout=0.0",
    ]
    run(make_recipe(*common, "batch.size=12"), tmp_path / "one", silent)
    run(make_recipe(*common, "batch.size=4", "batch.accumulation=3"), tmp_path / "three", silent)
    assert_same_run(tmp_path / "three", tmp_path / "one")
    assert weights(tmp_path / "one")
