import json
from types import SimpleNamespace

import msgspec
import pytest
from PIL import Image as PILImage

from benchmarks.dataset import read_records
from benchmarks.schema import Answer
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec
from infer.ask import GivenImages
from perf.canvas import run_canvas, stock_canvas
from perf.codecs import measure_codecs, measure_geometry
from recipes.inputs import Canvas

PLAN = Canvas(size=224, order=("ANT", "POST"), missing="black")


@pytest.fixture(scope="module")
def records(phantom_data):
    return list(read_records(phantom_data, "test"))


def test_both_ways_give_almost_the_same_pixels_and_codes_lose_half_a_bin(capsys):
    run_canvas(patients=2, questions=3, rounds=1)
    figures = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert figures["benchmark"] == "canvas"
    assert figures["patients"] == 2
    assert figures["answers"] > 6
    forms = [(each["size"], each["resize"]) for each in figures["canvases"]]
    assert forms == [(224, "squash"), (224, "pad"), (448, "squash"), (448, "pad")]
    for each in figures["canvases"]:
        assert set(each["rates"]) == {"stock", "ours"}
        assert each["beyond"] < 0.002
        assert each["resize"] == "squash" or each["difference"] <= 1
    pixels, codes = figures["codecs"]["scintiground_json"], figures["codecs"]["loc_tokens"]
    assert (pixels["changed"], pixels["moved"]) == (0, [0, 0])
    assert codes["changed"] == 0
    half_bin = figures["geometry"]["half_bin"]
    assert half_bin == pytest.approx([512 / 2046, 1024 / 2046])
    assert all(0 < moved <= limit for moved, limit in zip(codes["moved"], half_bin, strict=True))
    assert figures["geometry"]["moved"] == [0, 0]
    assert figures["peak_mib"] > 0


def test_the_stock_picture_holds_both_views_as_they_are(records):
    record = next(record for record in records if len(record.images) == 2)
    source = GivenImages(
        {
            image.path: PILImage.effect_noise((image.width, image.height), 90 + number).convert("RGB")
            for number, image in enumerate(record.images)
        }
    )
    picture = stock_canvas(record, source, resize="squash")
    assert picture.size == (128, 128)
    for number, image in enumerate(record.images):
        view = picture.crop((64 * number, 0, 64 * number + 64, 128))
        assert view.tobytes() == source(image, "").tobytes()


def test_padding_fills_up_to_a_square(records):
    record = msgspec.structs.replace(records[0], images=records[0].images[:1])
    source = GivenImages({record.images[0].path: PILImage.new("RGB", (64, 128), "white")})
    assert stock_canvas(record, source, resize="squash").size == (64, 128)
    picture = stock_canvas(record, source, resize="pad")
    assert picture.size == (128, 128)
    assert picture.crop((64, 0, 128, 128)).getextrema() == ((0, 0),) * 3


def test_answers_that_change_and_edges_that_move_are_counted(records, monkeypatch):
    """What `measure_codecs` says of a codec that loses labels, one that moves edges, and one that reads nothing."""

    def spoilt(decode):
        real = get_codec("loc_tokens", PLAN)
        codecs = {"scintiground_json": get_codec("scintiground_json")}
        codecs["loc_tokens"] = SimpleNamespace(
            encode=real.encode, decode=lambda text, ask: decode(real.decode(text, ask))
        )
        monkeypatch.setattr("perf.codecs.get_codec", lambda name, canvas: codecs[name])
        return measure_codecs(records, PLAN, rounds=1)["loc_tokens"]

    def moved(answer: Answer) -> Answer:
        boxes = [
            msgspec.structs.replace(box, xyxy=(x1, y1 - 5, x2 + 3, y2))
            for box in answer.boxes
            for x1, y1, x2, y2 in [box.xyxy]
        ]
        return msgspec.structs.replace(answer, boxes=tuple(boxes))

    usual = spoilt(lambda answer: answer)
    assert usual.changed == 0
    far = spoilt(moved)
    assert far.changed == 0
    assert 3 <= far.moved[0] <= 3 + usual.moved[0]
    assert 5 <= far.moved[1] <= 5 + usual.moved[1]
    labelled = sum(record.target.label is not None for record in records)
    assert 0 < labelled < len(records)
    assert spoilt(lambda answer: msgspec.structs.replace(answer, label=None)).changed == labelled
    assert spoilt(lambda answer: Invalid("nothing")).changed == len(records)


def test_boxes_that_are_not_found_again_are_an_error(records, monkeypatch):
    assert measure_geometry(records, PLAN, rounds=1).moved == (0, 0)
    monkeypatch.setattr("benchmarks.canvas.Layout.locate", lambda self, xyxy: "outside_panels")
    with pytest.raises(ValueError, match="is located as outside_panels"):
        measure_geometry(records, PLAN, rounds=1)
