"""Slices of a volume: which are shown, how many tokens they get, and batches without any image."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.schema import Answer, Box, Image, Record, Source
from collators.frames import keeps_target, shown, shown_places
from models.qwen3_vl import load_model
from recipes.inputs import Frames
from tests.collators.samples import PLAIN, make_collator, pictures, plain_record


def volume(count=8, *, boxed=(), side=64, first=1, name="v"):
    return Record(
        id=name,
        benchmark="sgmri",
        split="train",
        task="volume_localization",
        group=name,
        images=tuple(
            Image(path=f"{name}/{n}.png", width=side, height=side, frame=n) for n in range(first, first + count)
        ),
        question="Where?",
        answer_type="open_ended",
        target=Answer(text="There.", boxes=tuple(Box(image=n, xyxy=(1, 2, 3 + n, 9), label="Mass") for n in boxed)),
        source=Source(id=name, file="rows.json", row=1),
    )


@given(st.integers(1, 80), st.integers(1, 80), st.integers(1, 90))
def test_shown_frames_are_in_order_inside_the_volume_and_as_many_as_asked(count, wanted, center):
    for frames in (
        Frames(select="uniform", count=wanted),
        Frames(select="window", count=wanted),
        Frames(select="window", count=wanted, center=center),
    ):
        places = shown_places(frames, count)
        assert places == sorted(set(places))
        assert len(places) == min(count, wanted)
        assert places[0] >= 0
        assert places[-1] < count
    if wanted > 1:
        uniform = shown_places(Frames(select="uniform", count=wanted), count)
        assert (uniform[0], uniform[-1]) == (0, count - 1) or count == 1
        gaps = [after - before for before, after in itertools.pairwise(uniform)]
        assert not gaps or max(gaps) - min(gaps) <= 1


def test_the_middle_of_a_window_is_the_frame_asked_for():
    assert shown_places(Frames(select="window", count=3, center=5), 8) == [3, 4, 5]
    assert shown_places(Frames(select="window", count=3, center=1), 8) == [0, 1, 2]
    assert shown_places(Frames(select="window", count=3), 8) == [2, 3, 4]


@given(st.lists(st.integers(0, 7), max_size=5), st.sampled_from(["uniform", "window"]), st.integers(1, 8))
def test_boxes_stay_on_their_frames(boxed, select, count):
    record = volume(boxed=boxed)
    seen = shown(record, Frames(select=select, count=count))
    frames = {image.frame for image in seen.images}
    kept = [(record.images[box.image].frame, box.xyxy) for box in record.target.boxes]
    assert [(seen.images[box.image].frame, box.xyxy) for box in seen.target.boxes] == [
        place for place in kept if place[0] in frames
    ]


def test_records_that_are_no_volumes_are_shown_whole():
    frames = Frames(select="uniform", count=1)
    pair = plain_record("?", images=[("a", 64, 64), ("b", 64, 64)])
    assert shown(pair, frames) is pair
    one = volume(1, first=19)
    assert shown(one, frames) is one


@pytest.mark.parametrize(
    ("unseen", "boxed", "kept"),
    [("drop", [0], True), ("drop", [0, 4], False), ("cut", [0, 4], True), ("cut", [4], False), ("cut", [], True)],
)
def test_what_becomes_of_a_record_with_boxes_that_are_not_shown(unseen, boxed, kept):
    frames = Frames(select="window", count=2, center=1, unseen=unseen)
    record = volume(boxed=boxed)
    assert keeps_target(record, shown(record, frames), frames) is kept


def test_prompt_and_pixels_show_the_same_frames_and_the_target_their_boxes(make_recipe):
    recipe = make_recipe(
        "codec=sgmri_answer_first", "prompt.template=sgmri", "frames={select: window, count: 3, center: 5, unseen: cut}"
    )
    record = volume(boxed=[0, 5])
    collator = make_collator(recipe, pictures([record]), targets=True)
    batch = collator([record])
    assert len(batch["image_grid_thw"]) == 3
    text = collator.processor.tokenizer.decode(batch["input_ids"][0])
    assert [f"Frame {n}:" in text for n in range(1, 9)] == [n in (4, 5, 6) for n in range(1, 9)]
    assert "3 frames of one MRI volume, 4 to 6, each of 64 x 64 pixels." in text
    labels = batch["labels"][0]
    target = collator.processor.tokenizer.decode(labels[labels >= 0], skip_special_tokens=True)
    assert target == '{"answer":"There.","bboxes":[{"frame":6,"label":"Mass","bbox":[1,2,7,7]}]}'
    assert collator.measure([record])[0].total == batch["attention_mask"].sum()


def test_images_share_the_tokens_of_a_sample(make_recipe):
    recipe = make_recipe(*PLAIN, "images.max_tokens=64", "images.min_pixels=65536")
    records = [volume(count, side=320, name=f"v{count}") for count in (1, 4, 16, 60)]
    collator = make_collator(recipe, pictures(records), targets=True)
    batch = collator(records)
    counts = iter((batch["image_grid_thw"].prod(dim=1) // 4).tolist())
    for record, length in zip(records, collator.measure(records), strict=True):
        each = [next(counts) for _ in record.images]
        assert sum(each) == length.images <= 64
        assert len(set(each)) == 1
    assert collator.measure(records)[0].images == 64  # 320 x 320 alone: 256 x 256 of its 100 tokens
    with pytest.raises(DataError, match=r"65 images do not fit images\.max_tokens 64"):
        collator.measure([volume(65)])


def test_small_slices_are_not_enlarged_beyond_the_tokens_of_a_sample(make_recipe):
    """An area between two bounds that are close to each other may hold no grid: then the upper bound holds."""
    recipe = make_recipe(*PLAIN, "images.max_tokens=60", "images.min_pixels=65536")
    for side in range(32, 330, 7):
        length = make_collator(recipe, pictures([]), targets=True).measure([volume(2, side=side)])[0]
        assert 0 < length.images <= 60


def test_a_batch_alone_or_with_a_volume_gives_the_same_pixels(make_recipe):
    recipe = make_recipe(*PLAIN, "images.max_tokens=40")
    small, large = volume(2, side=96, name="a"), volume(9, side=128, name="b")
    collator = make_collator(recipe, pictures([small, large]), targets=True)
    alone, both = collator([small]), collator([small, large])
    assert torch.equal(both["pixel_values"][: len(alone["pixel_values"])], alone["pixel_values"])


@pytest.mark.parametrize("targets", [True, False])
def test_a_batch_without_images_runs_the_vision_tower_and_changes_nothing(make_recipe, targets):
    recipe = make_recipe(*PLAIN)
    records = [
        plain_record("Hot?", images=[], name="a"),
        plain_record("A longer question, is it hot?", images=[], name="b"),
    ]
    collator = make_collator(recipe, pictures(records), targets=targets)
    batch = collator(records)
    model = load_model(recipe.model).eval()
    ran = []
    model.model.visual.register_forward_hook(lambda *_: ran.append(True))
    keep = batch.pop("logits_to_keep", None)
    labels = batch.pop("labels", None)
    full = model(**batch).logits
    assert ran
    without = {name: batch[name] for name in ("input_ids", "attention_mask", "mm_token_type_ids")}
    side = slice(None, -1) if targets else slice(1, None)
    bare = model(**{name: values[:, side] for name, values in without.items()}).logits
    real = batch["attention_mask"][:, side].bool()
    torch.testing.assert_close(full[:, side][real], bare[real], rtol=1e-5, atol=1e-5)
    if targets:
        assert keep.sum() == (labels >= 0).sum() > 0


def test_other_words_for_instructions_or_volumes_are_another_encoder(make_recipe, monkeypatch):
    from collators import prompts

    def fingerprint(recipe):
        return make_collator(recipe, pictures([]), targets=True).encoder.fingerprint

    recipes = {name: make_recipe("codec=sgmri_text", f"prompt.template={name}") for name in ("sgmri", "sgmri_short")}
    before = {name: fingerprint(recipe) for name, recipe in recipes.items()}
    monkeypatch.setitem(prompts.INSTRUCTIONS, "yes_no", "Say Yes or No.")
    after = {name: fingerprint(recipe) for name, recipe in recipes.items()}
    assert after["sgmri"] != before["sgmri"]
    assert after["sgmri_short"] == before["sgmri_short"]
