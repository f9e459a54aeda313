"""Small records, predictions and prediction folders for the tests of `eval`."""

from __future__ import annotations

import base64
import io
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec
import PIL.Image

from benchmarks.dataset import load_info, write_dataset
from benchmarks.predictions import Manifest, Prediction, encode_prediction
from benchmarks.schema import Answer, Box, Image, Record, Source
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec

ANT, POST = (10.0, 10.0, 20.0, 20.0), (30.0, 10.0, 40.0, 20.0)
VIEWS = ("ANT", "POST")
BOXES = {"ANT": ANT, "POST": POST}


def record(
    number: int | str,
    task: str,
    label: str | None = None,
    *,
    group: str | None = None,
    views: tuple[str, ...] = ("ANT",),
    region: str = "left knee",
    **strata: str,
) -> Record:
    """A record with both views shown and one target box per asked view (none for `vqa`)."""
    boxes = () if task == "vqa" else tuple(Box(image=VIEWS.index(v), xyxy=BOXES[v], label=region) for v in views)
    identity = f"r{number}"
    return Record(
        id=identity,
        benchmark="scintiground",
        split="test",
        task=task,
        group=group or f"p{number}",
        images=tuple(Image(path=f"{view}.png", width=64, height=128, view=view) for view in VIEWS),
        question="Any hot spot?",
        target=Answer(text=None if task == "grounding" else "A sentence.", label=label, boxes=boxes),
        strata={
            "region": region,
            "view_scope": "BOTH" if len(views) != 1 else views[0],
            "region_level": "bone_region",
            **strata,
        },
        source=Source(id=identity, file="rows.jsonl", row=1),
    )


def volume(name: str, count: int, *, frames_with_boxes: Sequence[int] = (), label: str = "tear") -> Record:
    """A generic record with `count` slices of 64 x 64 pixels and one target box on each of some frames."""
    boxes = tuple(
        Box(image=frame - 1, xyxy=(8.0, frame, 24.0, 20.0 + frame), label=label) for frame in frames_with_boxes
    )
    return Record(
        id=name,
        benchmark="generic",
        split="test",
        task="volume_localization",
        group=name,
        images=tuple(Image(path=f"{name}/{n}.png", width=64, height=64, frame=n) for n in range(1, count + 1)),
        question="Where is it?",
        target=Answer(text="There.", boxes=boxes),
        source=Source(id=name, file="rows.jsonl", row=1),
    )


def answer_on(asked: Record, frames: Sequence[int]) -> Prediction:
    """An answer with one box on each of some frames of a volume."""
    boxes = tuple(Box(image=frame - 1, xyxy=(9.0, frame, 25.0, 20.0 + frame), label="tear") for frame in frames)
    return Prediction(id=asked.id, text="There.", answer=Answer(text="There.", boxes=boxes))


def shade(name: str, frame: int) -> int:
    """The grey of a slice that `draw_slices` draws, 0..255; the frames of a volume differ."""
    return (zlib.crc32(name.encode()) + 5 * frame) % 256


def draw_slices(folder: Path, records: Sequence[Record]) -> None:
    """The image files of volumes: each slice has one grey."""
    for record in records:
        for image in record.images:
            path = folder / image.path
            path.parent.mkdir(parents=True, exist_ok=True)
            PIL.Image.new("L", (image.width, image.height), shade(record.id, image.frame or 0)).save(path)


def opened(uri: str) -> PIL.Image.Image:
    """The picture in a data URI."""
    return PIL.Image.open(io.BytesIO(base64.b64decode(uri.partition(",")[2])))


def text_for(
    asked: Record, *, label: str | None = None, by_view: dict[str, object] | None = None, **fields: object
) -> str:
    """An official text: the record's own target, with its label, its boxes (by text view) or any field replaced."""
    own = {"PST" if asked.images[b.image].view == "POST" else "ANT": list(map(int, b.xyxy)) for b in asked.target.boxes}
    payload: dict[str, object] = {"task": asked.task}
    if asked.task != "grounding":
        payload |= {"answer": "A sentence.", "class": label or asked.target.label}
    if asked.task != "vqa":
        payload["region"] = "left_knee"
        payload["boxes"] = [{"view": view, "bbox": box} for view, box in (own if by_view is None else by_view).items()]
    return json.dumps(payload | fields)


def predict(asked: Record, text: str, codec: str = "scintiground_json", **fields: object) -> Prediction:
    """The row that `infer` would write for a text."""
    decoded = get_codec(codec).decode(text, asked.ask())
    if isinstance(decoded, Invalid):
        return Prediction(id=asked.id, text=text, invalid=decoded.reason, **fields)
    return Prediction(id=asked.id, text=text, answer=decoded, **fields)


def perfect(asked: Record) -> Prediction:
    """The right answer."""
    return predict(asked, text_for(asked))


def write_data(folder: Path, records: list[Record], benchmark: str = "scintiground") -> Path:
    """A prepared dataset."""
    write_dataset(folder, records, name="tiny", benchmark=benchmark, reader="test@1", image_root=folder, sources={})
    return folder


def write_run(folder: Path, data: Path, rows: list[Prediction], **fields: object) -> Path:
    """A finished prediction folder."""
    folder.mkdir(parents=True)
    defaults: dict[str, object] = {
        "name": folder.name,
        "dataset": str(data),
        "dataset_hash": load_info(data).content_hash,
        "split": "test",
        "records": len(rows),
        "engine": "hf",
        "codec": "scintiground_json",
        "encoder_fingerprint": "f" * 64,
    }
    manifest = Manifest(**(defaults | fields))
    (folder / "predictions.jsonl").write_bytes(b"".join(encode_prediction(row) + b"\n" for row in rows))
    (folder / "manifest.json").write_bytes(msgspec.json.encode(manifest))
    return folder
