"""Prepared pixels that are kept: the same bits as fresh ones, each image opened once, for towers that are trained."""

from __future__ import annotations

import pytest
import torch
from PIL import Image as PILImage

import benchmarks.images
from tests.groups import grouped_records, write_groups
from tests.sharding import assert_same_run, weights
from tests.train.runs import silent
from train.disk import cache_bytes
from train.prepare import prepare
from train.run import run


@pytest.fixture
def data(tmp_path):
    return write_groups(tmp_path / "data", grouped_records((3, 1, 2, 2), images=2))


@pytest.fixture
def opened(monkeypatch):
    """Paths of the images that are opened from now on."""
    paths = []
    open_image = benchmarks.images.open_image

    def noted(path, **keywords):
        paths.append(path.name + path.parent.name)
        return open_image(path, **keywords)

    monkeypatch.setattr(benchmarks.images, "open_image", noted)
    return paths


@pytest.fixture(params=["qwen3_vl", "qwen3_vl shared", "paligemma"])
def recipe_of(request, make_recipe, make_paligemma_recipe):
    """Full fine-tuning, vision tower and all, for two epochs."""
    make = make_paligemma_recipe if request.param == "paligemma" else make_recipe
    canvas = ["canvas={size: 32}"] if request.param == "paligemma" else []
    share = [f"batch.share_images={str('shared' in request.param).lower()}"]

    def made(data, *overrides):
        words = ("prompt.template=plain", "codec=plain", "data.validation=null", "adapter={kind: full}")
        steps = ("batch.size=4", "train.max_steps=4", "train.save_steps=4", "train.learning_rate=1.0e-3")
        return make(f"data.dataset={data}", *words, *canvas, *share, *steps, *overrides)

    return made


def test_runs_have_the_same_bits_and_open_each_image_once(recipe_of, data, opened, tmp_path):
    run(recipe_of(data), tmp_path / "off", silent)
    fresh = len(opened)
    opened.clear()
    run(recipe_of(data, "vision_cache=pixels"), tmp_path / "first", silent)
    assert len(opened) == len(set(opened)) == 8 < fresh
    opened.clear()
    run(recipe_of(data, "vision_cache=pixels"), tmp_path / "again", silent)
    assert not opened
    for name in ("first", "again"):
        assert_same_run(tmp_path / name, tmp_path / "off", tolerance=0)
        assert all(
            torch.equal(value, weights(tmp_path / "off")[key]) for key, value in weights(tmp_path / name).items()
        )


def test_a_run_asks_for_the_room_that_its_pixels_take(recipe_of, data, tmp_path):
    """PaliGemma's, which come once, take half of that."""
    recipe = recipe_of(data, "vision_cache=pixels")
    prepared = prepare(recipe, silent)
    expected = cache_bytes(prepared, tmp_path)
    for record in prepared.train.records:
        prepared.collator([record])
    taken = prepared.pixels.store.counts.bytes
    times = 2 if recipe.model.family == "paligemma" else 1
    assert expected / times == pytest.approx(taken, rel=0.05)
    assert cache_bytes(prepare(recipe_of(data), silent), tmp_path) == 0


def test_workers_keep_pixels_too(recipe_of, data, opened, tmp_path):
    run(recipe_of(data, "vision_cache=pixels", "batch.workers=2"), tmp_path / "workers", silent)
    run(recipe_of(data, "vision_cache=pixels"), tmp_path / "again", silent)
    assert not opened
    assert_same_run(tmp_path / "again", tmp_path / "workers", tolerance=0)


def test_a_changed_image_is_prepared_anew(recipe_of, data, opened, tmp_path):
    run(recipe_of(data, "vision_cache=pixels"), tmp_path / "first", silent)
    opened.clear()
    PILImage.new("L", (64, 64), 200).save(data / "slices/train0/0.png")
    run(recipe_of(data, "vision_cache=pixels"), tmp_path / "again", silent)
    assert set(opened) == {"0.pngtrain0", "1.pngtrain0"}
