"""Whole runs with shared images: the same history and weights as without, however a step is cut and by however many processes."""

from __future__ import annotations

import pytest

from tests.groups import grouped_records, write_groups
from tests.sharding import DDP, assert_same_run, trained, weights
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
