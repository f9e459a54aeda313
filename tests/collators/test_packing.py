"""A packed row holds each sample as it stands alone: its tokens, its targets, its positions."""

from __future__ import annotations

import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForImageTextToText

from collators.base import IGNORE
from collators.packing import common_prefix
from tests.collators.samples import PLAIN, make_collator, pictures, plain_record
from tests.groups import grouped_records

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=9)


@settings(deadline=None)
@given(st.lists(TOKENS, min_size=1, max_size=5))
def test_common_prefix_is_the_longest_that_leaves_every_row_a_token(rows):
    length = common_prefix(rows)
    assert all(row[:length] == rows[0][:length] and len(row) > length for row in rows)
    assert any(len(row) == length + 1 or row[: length + 1] != rows[0][: length + 1] for row in rows)


def samples_of(batch):
    """Tokens, positions int64[3, n] and labels of each segment of a packed row with its prefix, in the order of the row."""
    ids, positions, labels = batch["input_ids"][0], batch["position_ids"][:, 0], batch["labels"][0]
    start = 0
    for prefix, *segments in batch["groups"]:
        end = start + prefix
        for length in segments:
            own = torch.cat([torch.arange(start, start + prefix), torch.arange(end, end + length)])
            yield ids[own].tolist(), positions[:, own], labels[own].tolist()
            end += length
        start = end
    assert start == len(ids)


@pytest.mark.parametrize("sizes", [(5, 1, 2, 0, 9), (1,), (0,), (0, 0, 3)], ids=str)
def test_each_sample_is_in_the_row_as_it_stands_alone(sizes, make_recipe):
    """Positions as the model counts them for the sample alone."""
    recipe = make_recipe(*PLAIN)
    records = grouped_records(sizes)
    source = pictures(records)
    packed = make_collator(recipe, source, targets=True, share_images=True)
    apart = make_collator(recipe, source, targets=True)
    with torch.device("meta"):
        model = AutoModelForImageTextToText.from_config(AutoConfig.from_pretrained(recipe.model.checkpoint))
    batch = packed(records)
    found = list(samples_of(batch))
    wanted = []
    for record in records:
        alone = apart([record])
        real = alone["attention_mask"][0].bool()
        places = model.model.get_rope_index(
            alone["input_ids"],
            alone["mm_token_type_ids"],
            image_grid_thw=alone["image_grid_thw"] if record.images else None,
            attention_mask=alone["attention_mask"],
        )[0][:, 0, real]
        wanted.append((alone["input_ids"][0, real].tolist(), places, alone["labels"][0, real].tolist()))
    order = [int(owner) for owner in dict.fromkeys(batch["owners"].tolist())]
    assert sorted(order) == list(range(len(records)))
    for (ids, positions, labels), number in zip(found, order, strict=True):
        assert ids == wanted[number][0]
        assert labels == wanted[number][2]
        assert torch.equal(positions, wanted[number][1])


def test_supervised_tokens_are_predicted_from_their_own_segment(make_recipe):
    batch = make_collator(
        make_recipe(*PLAIN), pictures(records := grouped_records((5, 2))), targets=True, share_images=True
    )(records)
    labels, places = batch["labels"][0], batch["logits_to_keep"][0]
    assert (labels[places + 1] != IGNORE).all()
    assert len(places) == len(batch["owners"]) == (labels != IGNORE).sum()
    starts, start = set(), 0
    for prefix, *segments in batch["groups"]:
        start += prefix
        for length in segments:
            starts.add(start)
            start += length
    assert starts.isdisjoint((places + 1).tolist())  # a segment begins with a token of its prompt


def test_images_of_a_set_are_prepared_once(make_recipe):
    records = grouped_records((5, 2), images=3)
    source = pictures(records)
    opened = []

    def noted(image, where):
        opened.append(image.path)
        return source(image, where)

    batch = make_collator(make_recipe(*PLAIN), noted, targets=True, share_images=True)(records)
    assert len(opened) == len(set(opened)) == len(batch["image_grid_thw"]) == 6


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_measured_prefix_is_never_longer_than_the_shared_one(make_recipe, seed):
    """The plan counts on it: a pass never holds more tokens than planned."""
    recipe = make_recipe(*PLAIN)
    records = grouped_records((4, 1, 3), images=random.Random(seed).randint(1, 4), seed=seed)
    collator = make_collator(recipe, pictures(records), targets=True, share_images=True)
    lengths = dict(zip((record.id for record in records), collator.measure(records), strict=True))
    planned, seen = 0, set()
    for record in records:
        length = lengths[record.id]
        planned += length.total - (length.prefix if record.images in seen else 0)
        seen.add(record.images)
    assert collator(records)["input_ids"].numel() <= planned


def test_equal_questions_about_the_same_images_keep_a_token_of_their_own(make_recipe):
    records = [plain_record("Same?", answer, name=answer) for answer in ("yes", "no")]
    batch = make_collator(make_recipe(*PLAIN), pictures(records), targets=True, share_images=True)(records)
    ((_, first, second),) = batch["groups"]
    assert (batch["labels"] != IGNORE).sum() == first + second - 2
