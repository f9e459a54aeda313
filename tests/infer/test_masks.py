"""Predictions with masks: mask codes of a text become masks in native pixels, if the recipe names the decoder's weights."""

import numpy as np
import pytest

from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.masks import from_run_lengths
from benchmarks.predictions import read_predictions
from infer.engines.base import Generated
from infer.engines.hf import HfEngine
from infer.load import load_system
from infer.run import Request, run
from recipes.errors import RecipeError, UserError
from tests.adapters import write_adapter_run
from tests.mask_weights import random_weights

TEXT = "<loc0100><loc0050><loc0400><loc0300>" + "".join(f"<seg{n:03d}>" for n in range(0, 128, 8)) + " left knee"


@pytest.fixture(scope="module")
def seg_run(make_paligemma_recipe, tmp_path_factory):
    """A run of the codec `seg_tokens`; the tiny model's own texts do not matter here."""
    recipe = make_paligemma_recipe("codec=seg_tokens")
    return write_adapter_run(tmp_path_factory.mktemp("seg") / "seg", recipe)


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "vae-oid.npz"
    np.savez(path, **random_weights())
    return path


@pytest.fixture
def said(monkeypatch):
    """Every answer is the same box with its codes."""
    monkeypatch.setattr(
        HfEngine, "generate", lambda self, records: [Generated(text=TEXT, finish="stop") for _ in records]
    )


def request(seg_run, phantom_data, out, *overrides):
    return Request(weights=str(seg_run), data=phantom_data, split="test", out=out, limit=4, overrides=overrides)


def test_predictions_hold_the_masks_in_native_pixels_of_the_boxs_image(seg_run, phantom_data, tmp_path, weights, said):
    run(request(seg_run, phantom_data, tmp_path / "out", f"decoding.mask_decoder={weights}"))
    records = {record.id: record for record in read_records(phantom_data, "test")}
    rows = read_predictions(tmp_path / "out")
    assert len(rows) == 4
    for row in rows:
        if row.answer is None:
            assert row.invalid == "missing_view"  # a question on the other view alone
            continue
        (box,), (mask,) = row.answer.boxes, row.answer.masks
        image = records[row.id].images[box.image]
        pixels = from_run_lengths(mask.rle)
        assert (mask.image, mask.label) == (box.image, "left knee")
        assert pixels.shape == (image.height, image.width)
        inside = np.zeros_like(pixels)
        x1, y1, x2, y2 = (round(v) for v in box.xyxy)
        inside[max(y1 - 1, 0) : y2 + 1, max(x1 - 1, 0) : x2 + 1] = True
        assert pixels.any()
        assert not pixels[~inside].any()
    assert any(row.answer for row in rows)


def test_without_weights_the_boxes_stand_alone(seg_run, phantom_data, tmp_path, said):
    run(request(seg_run, phantom_data, tmp_path / "out"))
    answers = [row.answer for row in read_predictions(tmp_path / "out") if row.answer is not None]
    assert answers
    assert all(answer.boxes and not answer.masks for answer in answers)


def test_weights_that_are_none_are_refused_before_the_first_answer(seg_run, phantom_data, tmp_path):
    path = tmp_path / "vae-oid.npz"
    path.write_bytes(b"no archive")
    with pytest.raises(UserError, match="weights of the mask decoder cannot be read"):
        run(request(seg_run, phantom_data, tmp_path / "out", f"decoding.mask_decoder={path}"))
    assert not (tmp_path / "out").exists()


def test_a_codec_without_mask_codes_needs_no_decoder(make_paligemma_recipe, weights):
    with pytest.raises(RecipeError, match="codec loc_tokens writes no mask codes"):
        make_paligemma_recipe(f"decoding.mask_decoder={weights}")


def test_the_system_reads_texts_as_its_codec_does(seg_run):
    plain = load_system(str(seg_run), recipe_path=None, overrides=())
    assert plain.decode == plain.encoder.decode


def test_another_decoder_at_the_same_place_is_refused(seg_run, phantom_data, tmp_path, said):
    path = tmp_path / "vae-oid.npz"
    asked = request(seg_run, phantom_data, tmp_path / "out", f"decoding.mask_decoder={path}")
    np.savez(path, **random_weights(1))
    run(asked)
    np.savez(path, **random_weights(2))
    with pytest.raises(DataError, match="mask_decoder_hash"):
        run(asked)
