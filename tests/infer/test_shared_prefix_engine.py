"""Questions that share images are answered as if each were asked alone."""

from __future__ import annotations

import pytest
import torch

from benchmarks.errors import DataError
from infer.blocks import together
from infer.engines.group_cache import Group
from infer.engines.hf import HfEngine
from infer.engines.local import prediction_blocks
from infer.engines.shared_prefix import SharedPrefixEngine
from models.qwen3_vl import load_model
from tests.collators.samples import PLAIN, make_collator, pictures
from tests.groups import grouped_records

SIZES = (5, 1, 0, 3, 9, 1)
NEW_TOKENS = 12


@pytest.fixture(scope="module")
def recipe(make_recipe):
    return make_recipe(*PLAIN)


def various(recipe):
    """Weights so large that answers differ from question to question, and so many end tokens that some come early."""
    model = load_model(recipe.model).eval()
    model.generation_config.eos_token_id = list(range(0, 600, 15))
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.model.language_model.layers.parameters():
            if parameter.dim() > 1:
                parameter.add_(0.08 * torch.randn(parameter.shape, generator=generator))
    return model


@pytest.fixture(scope="module")
def model(recipe):
    return various(recipe)


@pytest.fixture(scope="module")
def records():
    return grouped_records(SIZES)


def shared(recipe, model, records, *, rows=8, images=None, new=NEW_TOKENS, workers=0):
    collator = make_collator(recipe, images or pictures(records), targets=False, share_images=True)
    return SharedPrefixEngine(model, collator, max_new_tokens=new, rows=rows, workers=workers)


def alone(recipe, model, records, *, new=NEW_TOKENS):
    engine = HfEngine(model, make_collator(recipe, pictures(records), targets=False), max_new_tokens=new)
    return [engine.generate([record])[0] for record in records]


@pytest.fixture(scope="module")
def expected(recipe, model, records):
    return alone(recipe, model, records)


@pytest.mark.parametrize("rows", [1, 2, 5, 64])
def test_answers_are_those_of_questions_asked_alone(rows, recipe, model, records, expected):
    """However many are answered at a time: finished ones make room for others, and groups are cut where they must be."""
    assert shared(recipe, model, records, rows=rows).generate(records) == expected
    assert len({answer.ids for answer in expected}) > 10
    assert {answer.finish for answer in expected} == {"stop", "length"}


def test_heads_that_share_keys(tiny_grouped_heads, make_recipe, records):
    recipe = make_recipe(*PLAIN, f"model.checkpoint={tiny_grouped_heads}")
    model = various(recipe)
    expected = alone(recipe, model, records)
    assert shared(recipe, model, records).generate(records) == expected
    assert len({answer.ids for answer in expected}) > 10


def test_order_of_the_questions_does_not_matter(recipe, model, records, expected):
    assert shared(recipe, model, records).generate(records[::-1]) == expected[::-1]


def test_the_prefix_is_computed_once_and_the_images_too(recipe, model, records):
    patches, tokens = [], []
    handles = [
        model.model.visual.register_forward_pre_hook(lambda _, arguments: patches.append(len(arguments[0]))),
        model.model.language_model.layers[0].register_forward_pre_hook(
            lambda _, arguments: tokens.append(arguments[0].shape[1])
        ),
    ]
    engine = shared(recipe, model, records, rows=64)
    engine.generate(records)
    for handle in handles:
        handle.remove()
    lengths = engine.collator.measure(records)
    sets = {record.images: length for record, length in zip(records, lengths, strict=True)}
    black = 4  # of the question without images
    assert sum(patches) == sum(length.images for length in sets.values()) * 4 + black
    most = sum(length.total - length.prefix for length in lengths) + sum(length.prefix for length in sets.values())
    assert tokens[0] <= most + 1
    assert all(count <= len(records) for count in tokens[1:])  # no padding: one token for each question
    assert tokens[1:] == sorted(tokens[1:], reverse=True)


def test_room_for_answers_grows_with_them(recipe, model, records, expected, monkeypatch):
    """Not by what they may have: the limit costs no memory."""
    monkeypatch.setattr("infer.engines.group_cache.ROOM", 1)
    assert shared(recipe, model, records).generate(records) == expected
    group = Group((7, 3, 2), 1000, torch.device("cpu"))
    made = torch.randn(2, 1, 2, 72, 4)
    group.write(0, 0, *made[:, :, :, :12])
    for first in range(12, 72, 2):
        group.write(0, first, *made[:, :, :, first : first + 2])
    assert torch.equal(torch.stack(group.read(0, 72)), made)
    assert group._buffers[0][0].shape[2] <= 12 + 2 * 60


def test_long_prompts_are_computed_in_several_passes(recipe, model, records, expected, monkeypatch):
    monkeypatch.setattr("infer.engines.shared_prefix.PREFILL_TOKENS", 60)
    assert shared(recipe, model, records, rows=64).generate(records) == expected


def test_a_record_that_cannot_be_read_harms_no_other(recipe, model, records, expected):
    source = pictures(records)
    bad = next(record for record in records if record.group == "train4")

    def broken(image, where):
        if image.path == bad.images[0].path:
            raise DataError("cut off", where=where)
        return source(image, where)

    answers = shared(recipe, model, records, images=broken).generate(records)
    for record, answer, wanted in zip(records, answers, expected, strict=True):
        if record.group == bad.group:
            assert "cut off" in answer.error
        else:
            assert answer == wanted


@pytest.mark.parametrize("workers", [1, 2])
def test_inputs_prepared_ahead_give_the_same_answers(workers, recipe, model, records, expected):
    """Also of records that cannot be read, whose errors come from the worker."""
    source = pictures(records)
    bad = next(record for record in records if record.group == "train3")

    def broken(image, where):
        if image.path == bad.images[1].path:
            raise DataError("cut off", where=where)
        return source(image, where)

    blocks = [records[start : start + 6] for start in range(0, len(records), 6)]
    engine = shared(recipe, model, records, images=broken, rows=4, workers=workers)
    engine.expect(blocks)
    answers = [answer for block in blocks for answer in engine.generate(block)]
    for record, answer, wanted in zip(records, answers, expected, strict=True):
        assert ("cut off" in answer.error) if record.group == bad.group else (answer == wanted)


def test_blocks_that_were_not_announced_are_refused(recipe, model, records):
    engine = shared(recipe, model, records, workers=1)
    engine.expect([records[:3], records[3:]])
    with pytest.raises(ValueError, match="was not announced"):
        engine.generate(records[3:])


def test_numbers_that_are_not_finite_are_no_answer(recipe, records):
    model = load_model(recipe.model).eval()
    with torch.no_grad():
        model.lm_head.weight[7] = torch.nan
    answers = shared(recipe, model, records).generate(records)
    assert all("not finite" in answer.error for answer in answers)


def test_a_limit_of_one_token(recipe, model, records):
    assert shared(recipe, model, records, new=1).generate(records) == alone(recipe, model, records, new=1)


def test_blocks_hold_whole_image_sets():
    records = grouped_records((5, 1, 0, 3, 9, 1))
    blocks = together(records, 6, lambda record: record.images or record.id)
    assert sorted(place for block in blocks for place in block) == list(range(len(records)))
    assert all(len(block) <= 6 or len({records[place].images for place in block}) == 1 for block in blocks)
    homes = {}
    for number, block in enumerate(blocks):
        for place in block:
            assert homes.setdefault(records[place].images or place, number) == number


@pytest.mark.parametrize("whole", [True, False])
def test_a_batch_for_generate_is_no_longer_than_asked_for(whole, make_recipe, records):
    """Processes that hold the weights together answer by `generate`, which takes a block as one batch."""
    recipe = make_recipe(*PLAIN, "decoding.batch_size=3")
    collator = make_collator(recipe, pictures(records), targets=False)
    blocks = prediction_blocks(records, recipe, collator.encoder, whole=whole)
    assert sorted(place for block in blocks for place in block) == list(range(len(records)))
    assert (max(map(len, blocks)) <= 3) != whole
