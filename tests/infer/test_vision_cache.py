"""Prediction with kept vision features: the same answers, and images encoded once whoever asks about them."""

from __future__ import annotations

import shutil

import pytest
from PIL import Image as PILImage

from benchmarks.dataset import image_root, read_records
from benchmarks.predictions import PREDICTIONS, read_predictions
from benchmarks.prepare import prepare
from collators.encoder import build_encoder
from collators.sources import FolderImages
from infer.engines.local import local_engine
from infer.run import Request, run
from models.registry import family_module
from models.vision_cache import open_vision_cache
from train.run import run as train


@pytest.fixture
def calls(monkeypatch):
    """Grows with each call of a vision tower."""
    from transformers.models.paligemma.modeling_paligemma import PaliGemmaModel
    from transformers.models.qwen3_vl.modeling_qwen3_vl import Qwen3VLModel

    seen = []
    for owner in (Qwen3VLModel, PaliGemmaModel):

        def noted(*arguments, real=owner.get_image_features, **keywords):
            seen.append("encode")
            return real(*arguments, **keywords)

        monkeypatch.setattr(owner, "get_image_features", noted)
    return seen


@pytest.fixture
def data(phantom_release, tmp_path):
    """A dataset of its own, whose images may be spoilt and which may keep features."""
    shutil.copytree(phantom_release, tmp_path / "release")
    prepare("scintiground", tmp_path / "release", tmp_path / "data")
    return tmp_path / "data"


@pytest.fixture
def answers(data, make_recipe, make_paligemma_recipe):
    """Answers of a tiny model to the first validation questions, by calls of four."""

    def ask(family, *overrides, count=12):
        form = ("prompt.template=scintiground_class_first", "codec=scintiground_class_first")
        recipe = {"qwen3_vl": make_recipe, "paligemma": make_paligemma_recipe}[family](*form, *overrides)
        module = family_module(family)
        processor = module.load_processor(recipe.model, recipe.images)
        model = module.load_model(recipe.model).eval()
        encoder = build_encoder(recipe, processor)
        kept = open_vision_cache(recipe, model, encoder, data)
        engine = local_engine(recipe, model, encoder, processor, FolderImages(image_root(data)), kept=kept)
        records = list(read_records(data, "val"))[:count]
        return [each for start in range(0, count, 4) for each in engine.generate(records[start : start + 4])]

    return ask


WAYS = ("vision_cache=memory", "vision_cache=disk")


@pytest.mark.parametrize("share", ["decoding.share_images=true", "decoding.share_images=false"])
def test_qwen_answers_the_same_bit_for_bit_wherever_features_are_kept(share, answers):
    nothing = answers("qwen3_vl", share, "vision_cache=memory", "vision_cache_gib=1.0e-9")
    assert all(answers("qwen3_vl", share, way) == nothing for way in (*WAYS, WAYS[1]))
    # Without a cache the images of a call are encoded together: the same texts, and scores up to rounding.
    off = answers("qwen3_vl", share)
    assert [each.text for each in off] == [each.text for each in nothing]
    for mine, theirs in zip(nothing, off, strict=True):
        assert (mine.label_scores or {}).keys() == (theirs.label_scores or {}).keys()
        assert mine.label_scores is None or mine.label_scores == pytest.approx(theirs.label_scores, abs=1e-4)
    assert len({str(each.label_scores) for each in off}) > 3


@pytest.mark.parametrize("way", WAYS)
def test_paligemma_answers_as_it_does_without(way, answers):
    expected = answers("paligemma")
    assert answers("paligemma", way) == expected
    assert answers("paligemma", way) == expected
    assert len({str(each.label_scores) for each in expected}) > 3


@pytest.mark.parametrize("family", ["qwen3_vl", "paligemma"])
def test_each_image_set_is_encoded_once(family, answers, data, calls):
    sets = {record.images for record in list(read_records(data, "val"))[:12]}
    answers(family, "vision_cache=memory")
    assert len(calls) == len(sets) < 12
    answers(family, "vision_cache=disk")
    assert len(calls) == 2 * len(sets)
    answers(family, "vision_cache=disk")
    assert len(calls) == 2 * len(sets)


@pytest.mark.parametrize("family", ["qwen3_vl", "paligemma"])
def test_an_image_that_cannot_be_read_is_an_error_row_and_harms_no_other(family, answers, data):
    expected = answers(family, "vision_cache=memory")
    records = list(read_records(data, "val"))[:12]
    spoilt = records[0].images[0]
    (image_root(data) / spoilt.path).write_bytes(b"no image")
    for _ in range(2):  # nothing of it is kept
        found = answers(family, "vision_cache=disk")
        for record, row, wanted in zip(records, found, expected, strict=True):
            if spoilt in record.images:
                assert spoilt.path in row.error
            else:
                assert row == wanted


def request(data, weights, out, *overrides, **changes):
    return Request(
        **{"weights": str(weights), "data": data, "split": "val", "out": out, "overrides": overrides, **changes}
    )


def texts(folder):
    return [row.text for row in read_predictions(folder)]


def test_prediction_finds_what_training_kept_and_other_controls_do_not(make_recipe, data, calls, tmp_path):
    words = (f"data.dataset={data}", "vision_cache=disk", "train.max_steps=1", "batch.share_images=true")
    folder = train(make_recipe(*words), tmp_path / "run", lambda line: None)
    validated = len(calls)
    kept = set((data / "vision_cache").rglob("*.safetensors"))
    assert len(kept) == validated > 0
    found = run(request(data, folder, tmp_path / "kept"))
    assert len(calls) == validated  # the validation loss saw the same images with the same tower
    alone = run(request(data, folder, tmp_path / "off", "vision_cache=off"))
    assert texts(found) == texts(alone)
    calls.clear()
    blank = run(request(data, folder, tmp_path / "blank", control="blank_image"))
    assert calls
    assert set((data / "vision_cache").rglob("*.safetensors")) > kept
    shutil.rmtree(data / "vision_cache")
    again = run(request(data, folder, tmp_path / "blank-again", control="blank_image"))
    assert (again / PREDICTIONS).read_bytes() == (blank / PREDICTIONS).read_bytes()


def test_an_image_that_was_changed_is_not_answered_from_before(answers, data):
    before = answers("qwen3_vl", "vision_cache=disk")
    for image in {image for record in read_records(data, "val") for image in record.images}:
        path = image_root(data) / image.path
        PILImage.effect_noise((image.width, image.height), 90).save(path)
    after = answers("qwen3_vl", "vision_cache=disk")
    assert after == answers("qwen3_vl", "vision_cache=memory")
    assert [each.label_scores for each in after] != [each.label_scores for each in before]
