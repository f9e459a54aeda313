"""Engine `openai` against a real local server: what is sent, and what becomes of what comes back."""

import itertools
import json
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage

from benchmarks.dataset import image_root, read_records
from benchmarks.predictions import PREDICTIONS, read_manifest, read_predictions
from collators.encoder import build_chat_encoder
from infer.engines.openai import reduced
from infer.run import run
from recipes.errors import RecipeError
from recipes.load import load_recipe
from tests.chat_server import Answer, chat_server, failed, pictures, question, said
from tests.infer.served_data import KEY, RECIPE, request, write_sgmri

SPECIAL = (
    "<loc0102><loc0256> lesion",
    "<|box_start|>(10,20),(30,40)<|box_end|>",
    "No. <|im_end|>\u2028 <pad> 🧠 ",
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Five questions: three about a slice, two about a volume of four."""
    return write_sgmri(tmp_path_factory.mktemp("sgmri"), 3)


@pytest.fixture(scope="module")
def records(data):
    return list(read_records(data, "test"))


def rows_of(answer, data, out, *overrides, **changes):
    """The rows of a run and the server it asked."""
    with chat_server(answer) as server:
        folder = run(request(server, data, out, *overrides, **changes))
    return read_predictions(folder), server


def by_question(server):
    """Question -> the body that asked it, each asked once."""
    assert len(set(server.questions())) == len(server.calls)
    return {question(body): body for body in server.calls}


def pixels(data, image):
    with PILImage.open(image_root(data) / image.path) as picture:
        return np.asarray(picture.convert("RGB"))


@pytest.fixture(scope="module")
def volume(records):
    """The first record: four frames."""
    return records[0]


def test_a_call_holds_prompt_and_pixels_of_its_record_in_order(data, records, tmp_path):
    rows, server = rows_of(lambda body: said("Yes."), data, tmp_path / "out")
    assert len(rows) == len(records) == 5
    encoder = build_chat_encoder(load_recipe(RECIPE))
    bodies = list(by_question(server).values())
    assert server.keys == [f"Bearer {KEY}"] * 5
    # One after the other in dataset order, unless asked otherwise.
    for record, body in zip(records, bodies, strict=True):
        assert {name: body[name] for name in body if name != "messages"} == {
            "model": "m",
            "temperature": 0,
            "max_tokens": 4096,
        }
        system, user = encoder.messages(record.ask())
        assert body["messages"][0] == {"role": "system", "content": system["content"][0]["text"]}
        assert body["messages"][1]["role"] == "user"
        parts = body["messages"][1]["content"]
        assert [part for part in parts if part["type"] == "text"] == [p for p in user["content"] if p["type"] == "text"]
        assert [part["type"] for part in parts] == [p["type"].replace("image", "image_url") for p in user["content"]]
        assert all(part["image_url"]["detail"] == "high" for part in parts if part["type"] == "image_url")
        sent = pictures(body)
        assert len(sent) == len(record.images)
        for picture, image in zip(sent, record.images, strict=True):
            assert np.array_equal(np.asarray(picture), pixels(data, image))
    labels = [part["text"] for part in bodies[0]["messages"][1]["content"] if part["type"] == "text"][:-1]
    assert labels == ["Frame 1:", "Frame 2:", "Frame 3:", "Frame 4:"]


def test_frames_that_are_not_shown_are_not_sent(data, volume, tmp_path):
    chosen = ("frames.select=uniform", "frames.count=2")
    _, server = rows_of(lambda body: said("Yes."), data, tmp_path / "out", *chosen)
    body = server.calls[0]
    texts = [part["text"] for part in body["messages"][1]["content"] if part["type"] == "text"]
    assert texts[:-1] == ["Frame 1:", "Frame 4:"]
    assert "2 frames of one MRI volume, 1 to 4" in texts[-1]
    for picture, image in zip(pictures(body), (volume.images[0], volume.images[3]), strict=True):
        assert np.array_equal(np.asarray(picture), pixels(data, image))


def test_larger_images_are_reduced_and_boxes_stay_native(data, records, tmp_path):
    budget = ("images.min_pixels=1", "images.max_pixels=4096")
    rows, server = rows_of(lambda body: said("There: <bbx>[60,90,40,22]</bbx>."), data, tmp_path / "out", *budget)
    assert {picture.size for body in server.calls for picture in pictures(body)} == {(64, 64)}
    assert all("128 x 128 pixels" in text for text in server.questions())
    assert rows[2].answer.boxes[0].xyxy == records[2].target.boxes[0].xyxy == (60, 90, 100, 112)


@settings(deadline=None)
@given(st.integers(1, 400), st.integers(1, 400), st.integers(1, 40_000))
def test_reduced_images_fit_and_keep_their_shape(width, height, most):
    picture = PILImage.new("RGB", (width, height))
    small = reduced(picture, most)
    assert small.width * small.height <= most
    if width * height <= most:
        assert small is picture
    elif min(small.size) > 1:
        # Each side within one pixel of the same share.
        share = (most / (width * height)) ** 0.5
        assert width * share - 1 <= small.width <= width * share
        assert height * share - 1 <= small.height <= height * share


def test_rows_say_tokens_and_the_end(data, tmp_path):
    answers = {1: said("Here.", usage=(1200, 7)), 2: said("Frame 1: <bbx>[1,2", "length"), 3: said("Here.", usage=None)}
    order = itertools.count(1)
    rows, _ = rows_of(lambda body: answers.get(next(order), said("Yes.")), data, tmp_path / "out")
    assert (rows[0].tokens.prompt, rows[0].tokens.new, rows[0].finish) == (1200, 7, "stop")
    assert rows[1].finish == "length"
    assert rows[2].tokens is None


@pytest.mark.parametrize(
    ("answer", "text", "finish", "reason"),
    [
        (said(None, "length"), "", "length", "truncated: empty"),
        (said("at <bbx>[1,2</bbx>", "length"), "at <bbx>[1,2</bbx>", "length", "truncated: invalid_bbox"),
        (said(None), "", "stop", "empty"),
        (said(None, "content_filter"), "", "stop", "empty"),
        (said(None, refusal="I will not."), "I will not.", "stop", None),
    ],
)
def test_cut_empty_and_refused_replies_are_answers_of_the_model(data, tmp_path, answer, text, finish, reason):
    rows, _ = rows_of(lambda body: answer, data, tmp_path / "out")
    # A localization: its answer may hold boxes.
    assert (rows[2].text, rows[2].finish, rows[2].invalid, rows[2].error) == (text, finish, reason, None)


@pytest.mark.parametrize("text", SPECIAL)
def test_special_tokens_survive_in_the_file(data, tmp_path, text):
    rows, _ = rows_of(lambda body: said(text), data, tmp_path / "out", limit=1)
    assert rows[0].text == text
    assert json.loads((tmp_path / "out" / PREDICTIONS).read_text())["text"] == text


def test_a_busy_server_costs_no_row(data, tmp_path):
    order = itertools.count()
    rows, server = rows_of(lambda body: failed(429) if next(order) % 2 else said("Yes."), data, tmp_path / "out")
    assert not any(row.error for row in rows)
    assert len(server.calls) == 9


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (failed(500, f"{KEY} is on fire"), "HTTP status 500: (the key) is on fire"),
        (failed(400, "maximum context length"), "the server refuses the call, HTTP status 400: maximum context length"),
        (Answer(0, ""), "the connection broke off"),
        (Answer(200, "{}"), "what came back is no chat completion"),
    ],
)
def test_a_call_that_fails_is_an_error_row_and_harms_no_other(data, records, tmp_path, answer, error):
    bad = records[1].question
    rows, _ = rows_of(lambda body: answer if bad in question(body) else said("Yes."), data, tmp_path / "out", retries=1)
    assert (rows[1].error, rows[1].text, rows[1].answer, rows[1].invalid) == (error, None, None, None)
    assert all(row.text == "Yes." and row.error is None for row in [rows[0], *rows[2:]])
    assert all(KEY not in path.read_text() for path in (tmp_path / "out").iterdir())


def test_a_reply_that_does_not_come_is_an_error_row(data, records, tmp_path):
    bad, never = records[1].question, threading.Event()

    def answer(body):
        if bad in question(body):
            never.wait(timeout=30)
        return said("Yes.")

    with chat_server(answer) as server:
        rows = read_predictions(run(request(server, data, tmp_path / "out", seconds=0.5, retries=0)))
        never.set()
    assert [row.error for row in rows] == [None, "no reply within 0.5 seconds", None, None, None]


def test_an_image_that_cannot_be_read_is_an_error_row_without_a_call(tmp_path):
    own = write_sgmri(tmp_path, 3)
    *rest, last = read_records(own, "test")
    (image_root(own) / last.images[0].path).write_bytes(b"no image")
    rows, server = rows_of(lambda body: said("Yes."), own, tmp_path / "out")
    assert "cannot be read" in rows[-1].error
    assert last.images[0].path in rows[-1].error
    assert len(server.calls) == len(rest) == sum(row.error is None for row in rows)


def test_the_blank_control_sends_black_pictures_of_the_same_size(data, tmp_path):
    rows, server = rows_of(lambda body: said("Yes."), data, tmp_path / "out", control="blank_image")
    assert len(rows) == 5
    for body in server.calls:
        assert all(picture.size == (128, 128) and not np.asarray(picture).any() for picture in pictures(body))
    assert read_manifest(tmp_path / "out").control == "blank_image"


def fingerprint(*overrides):
    return build_chat_encoder(load_recipe(RECIPE, overrides)).fingerprint


def test_the_fingerprint_covers_what_is_sent_and_nothing_else():
    same = ("batch.size=4", "decoding.max_new_tokens=9", "model.checkpoint=other", "model.dtype=float32")
    assert fingerprint(*same) == fingerprint()
    changes = (
        ("prompt.template=sgmri",),
        ("codec=sgmri_json",),
        ("images.max_pixels=70000",),
        ("frames.select=uniform", "frames.count=9"),
    )
    assert len({fingerprint(), *(fingerprint(*change) for change in changes)}) == 5


@pytest.mark.parametrize("recipe", ["sgmri/qwen3_vl_8b_zero_shot", "generic/paligemma_3b_224_transfer"])
def test_a_recipe_for_weights_that_are_loaded_here_is_refused(recipe):
    with pytest.raises(RecipeError, match="sizes images by its own processor"):
        build_chat_encoder(load_recipe(recipe))


@pytest.mark.parametrize("override", ["images.min_pixels=602112", "images.max_tokens=100", "canvas.size=224"])
def test_what_a_server_decides_is_no_setting(override):
    with pytest.raises(RecipeError, match=r"max_pixels|canvas is for"):
        load_recipe(RECIPE, [override])


def test_a_model_on_a_server_is_neither_loaded_nor_trained(data, tmp_path):
    from infer.load import load_system
    from train.prepare import read_feed

    for attempt in (
        lambda: load_system("some/model", recipe_path=RECIPE, overrides=()),
        lambda: read_feed(load_recipe(RECIPE, [f"data.dataset={data}", "data.train=test"])),
    ):
        with pytest.raises(RecipeError, match="on a server"):
            attempt()
