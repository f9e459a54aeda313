"""Mask codes behind location codes: written, read, refused; reading never fails."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.canvas import plan_layout
from benchmarks.schema import Answer, Ask, Box, Image, Mask, RunLengths
from collators.codecs.base import CodecError, Invalid
from collators.codecs.loc_tokens import LocTokens
from collators.codecs.registry import get_codec
from collators.codecs.seg_tokens import SegTokens
from recipes.errors import UserError
from recipes.inputs import Canvas

PLAN = Canvas(size=224, order=("ANT", "POST"))
CODEC = SegTokens(PLAN)
LAST = tuple(range(112, 128))
SEGMENTS = "".join(f"<seg{code:03d}>" for code in LAST)
BOX = "<loc0261><loc0635><loc0357><loc0833>"
KNEE = Box(image=1, xyxy=(62, 261, 161, 357), label="left knee")
MASK = Mask(image=1, rle=RunLengths(size=(2, 2), counts=[4]))


def ask(task: str = "grounding", **fields) -> Ask:
    images = tuple(Image(path=f"{view}.png", width=256, height=1024, view=view) for view in ("ANT", "POST"))
    return Ask(task=task, images=images, question="Where?", **fields)


def test_sixteen_codes_stand_between_the_box_and_its_label():
    answer = Answer(text="It is hot.", label="abnormal", boxes=(KNEE,))
    text = CODEC.encode(answer, ask("grounded_vqa"), [LAST])
    assert text == f"abnormal ; {BOX}{SEGMENTS} left knee ; It is hot."
    (mask,) = CODEC.coded_masks(text, ask("grounded_vqa"))
    assert (mask.image, mask.codes, mask.label) == (1, LAST, "left knee")


def test_the_codec_needs_its_canvas():
    assert isinstance(get_codec("seg_tokens", PLAN), SegTokens)
    with pytest.raises(UserError, match="writes places on a canvas"):
        get_codec("seg_tokens")


codes = st.tuples(*[st.integers(0, 127)] * 16)
spans = st.tuples(st.floats(0, 256), st.floats(0, 256)).map(sorted).filter(lambda pair: pair[0] + 3 < pair[1])


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), spans, spans, codes), max_size=3),
    st.sampled_from([None, "abnormal"]),
    st.sampled_from([None, "left knee"]),
)
def test_codes_come_back_exactly_and_all_else_is_as_in_loc_tokens(objects, label, name):
    boxes = tuple(Box(image=i, xyxy=(x1, y1, x2, y2), label=name) for i, (x1, x2), (y1, y2), _ in objects)
    answer = Answer(text="Here.", label=label, boxes=boxes)
    written = [each[-1] for each in objects]
    text = CODEC.encode(answer, ask("grounded_vqa"), written)
    plain = LocTokens(PLAN)
    assert re.sub("(<seg[0-9]{3}>){16}", "", text) == plain.encode(answer, ask("grounded_vqa"))
    read = CODEC.decode(text, ask("grounded_vqa"))
    assert read == plain.decode(plain.encode(answer, ask("grounded_vqa")), ask("grounded_vqa"))
    masks = CODEC.coded_masks(text, ask("grounded_vqa"))
    assert [mask.codes for mask in masks] == written
    half = plan_layout(PLAN, ask().images).half_bin()
    for mask, box in zip(masks, boxes, strict=True):
        assert (mask.image, mask.label) == (box.image, name)
        for axis, (found, given_) in enumerate(zip(mask.xyxy, box.xyxy, strict=True)):
            assert abs(found - given_) <= half[axis % 2] * (1 + 1e-9)


def test_a_box_beyond_its_view_is_clipped_in_the_answer_but_not_under_the_mask():
    text = f"<loc0100><loc0411><loc0200><loc0521>{SEGMENTS} left knee"
    (box,) = CODEC.decode(text, ask()).boxes
    (mask,) = CODEC.coded_masks(text, ask())
    assert (box.image, mask.image) == (0, 0)
    assert box.xyxy[2] == 256
    assert mask.xyxy[2] == pytest.approx(521 * 512 / 1023)
    assert mask.xyxy[:2] == box.xyxy[:2]


PIECES = st.sampled_from(
    [BOX, SEGMENTS, SEGMENTS[8:], "<seg000>", "<seg128>", "<seg01>", "<loc0010>", " ; ", ";", "abnormal", "knee", " "]
)


@settings(deadline=None, max_examples=300)
@given(
    st.one_of(st.text(), st.lists(PIECES, max_size=10).map("".join)),
    st.sampled_from(["vqa", "grounded_vqa", "x"]),
    st.booleans(),
)
def test_reading_never_fails_and_both_ways_of_reading_agree(text, task, pictured):
    question = ask(task) if pictured else Ask(task=task, images=(), question="Where?")
    answer, masks = CODEC.decode(text, question), CODEC.coded_masks(text, question)
    if isinstance(answer, Invalid):
        assert answer.reason
        assert masks == answer
        return
    assert [(mask.image, mask.label) for mask in masks] == [(box.image, box.label) for box in answer.boxes]
    for mask, box in zip(masks, answer.boxes, strict=True):
        assert np.shape(mask.codes) == (16,)
        x1, y1, x2, y2 = mask.xyxy
        assert x1 <= box.xyxy[0] < box.xyxy[2] <= x2
        assert y1 <= box.xyxy[1] < box.xyxy[3] <= y2


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (f"{BOX} knee", "invalid_codes"),
        (f"{BOX}{SEGMENTS[8:]} knee", "invalid_codes"),
        (f"{BOX}{SEGMENTS}<seg000> knee", "invalid_codes"),
        (f"{BOX}{SEGMENTS[8:]}<seg128> knee", "invalid_codes"),
        (f"{SEGMENTS}{BOX} knee", "invalid_codes"),
        (f"{BOX}{SEGMENTS} knee ; {BOX} knee", "invalid_codes"),
        (f"<loc0010><loc0010><loc0005><loc0050>{SEGMENTS} knee", "non_increasing_box"),
        (f"<loc0010><loc0400><loc0100><loc0700>{SEGMENTS} knee", "straddles_panels"),
        (f"{BOX}{SEGMENTS} knee ;", "empty_field"),
        ("", "empty"),
        (None, "not_text"),
    ],
)
def test_texts_that_hold_no_masks_say_why(text, reason):
    assert CODEC.decode(text, ask()) == CODEC.coded_masks(text, ask()) == Invalid(reason)


@pytest.mark.parametrize(
    ("answer", "given_", "said"),
    [
        (Answer(boxes=(KNEE,)), [], "1 boxes and 0 masks, mask codes are given for 0 boxes"),
        (Answer(boxes=(KNEE,), masks=(MASK,)), [], "decided by the published encoder"),
        (Answer(text="Here.", masks=(MASK,)), [], "0 boxes and 1 masks"),
        (Answer(boxes=(KNEE,)), [LAST, LAST], "given for 2 boxes"),
        (Answer(boxes=(KNEE,)), [LAST[1:]], "the mask codes of box 1 are"),
        (Answer(boxes=(KNEE,)), [(*LAST[1:], 128)], "the mask codes of box 1 are"),
        (Answer(boxes=(KNEE,)), [(*LAST[1:], -1)], "the mask codes of box 1 are"),
    ],
)
def test_masks_are_written_from_given_codes_or_not_at_all(answer, given_, said):
    with pytest.raises(CodecError, match=said) as raised:
        CODEC.encode(answer, ask(), given_)
    assert "codec seg_tokens, task grounding" in raised.value.where


def test_masks_whose_codes_are_given_and_answers_without_any_are_written():
    assert CODEC.encode(Answer(boxes=(KNEE,), masks=(MASK,)), ask(), [LAST]) == f"{BOX}{SEGMENTS} left knee"
    assert CODEC.encode(Answer(text="It is hot.", label="yes"), ask("vqa")) == "yes ; It is hot."
