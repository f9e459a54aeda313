"""Small SGMRI-VQA records: both organs, both levels, every task and answer type."""

from __future__ import annotations

from benchmarks.predictions import Prediction
from benchmarks.schema import Answer, Box, Image, Record, Source
from benchmarks.sgmri import Level, record_id, record_task
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec

SIZES = {"brain": 256, "knee": 320}
LETTERS = "A) mass\nB) edema\nC) cyst\nD) normal"


def slices(organ: str, volume: str, frames: range) -> tuple[Image, ...]:
    """Slices of a volume, by their official numbers."""
    side = SIZES[organ]
    return tuple(Image(path=f"{volume}/{volume}_slice_{n:03d}.png", width=side, height=side, frame=n) for n in frames)


def box(image: int, left: float = 40.0) -> Box:
    """A box of 30 x 20 pixels on an image."""
    return Box(image=image, xyxy=(left, 50.0, left + 30.0, 70.0), label="Mass")


def record(
    organ: str,
    level: Level,
    task: str,
    answer: str,
    *,
    kind: str = "open_ended",
    boxes: tuple[Box, ...] = (),
    choices: tuple[str, ...] = (),
    volume: str | None = None,
    frame: int = 3,
    question: str | None = None,
) -> Record:
    """A record of a slice (frame 3) or of a volume of five slices, which are numbered 2 to 6."""
    volume = volume or f"file_{organ}_1"
    question = question or f"{task}: what is seen?"
    numbers = range(frame, frame + 1) if level == "image" else range(2, 7)
    label = answer if answer in choices else None
    identity = record_id(organ, level, volume, task, question, frame=frame if level == "image" else None)
    return Record(
        id=identity,
        benchmark="sgmri",
        split="test",
        task=record_task(level, task),
        group=volume,
        images=slices(organ, volume, numbers),
        question=question,
        choices=choices,
        answer_type=kind,
        target=Answer(text=answer, label=label, boxes=boxes, reasoning="The signal is bright."),
        strata={"organ": organ, "level": level, "official_task": task, "answer_type": kind},
        source=Source(id=identity, file="qa.json", row=1),
    )


def all_tasks(organ: str) -> list[Record]:
    """Every task at both levels."""
    yes_no: dict[str, object] = {"kind": "closed_ended", "choices": ("Yes", "No")}
    letter: dict[str, object] = {"kind": "single_choice", "choices": ("A", "B", "C", "D")}
    on_slice, in_volume = (box(0),), (box(1), box(3, 90.0))
    tag, tags = "<bbx>[40,50,30,20]</bbx>", "Frame 3: <bbx>[40,50,30,20]</bbx>; Frame 5: <bbx>[90,50,30,20]</bbx>"
    return [
        record(organ, "image", "detection", "Yes", boxes=on_slice, **yes_no),
        record(organ, "image", "detection", "No", frame=4, **yes_no),
        record(organ, "image", "classification", "B", boxes=on_slice, **letter),
        record(organ, "image", "diagnosis", "A, C", kind="multiple_choice", boxes=on_slice),
        record(organ, "image", "localization", f"On the left at {tag}.", boxes=on_slice),
        record(organ, "image", "captioning", "A small bright mass lies on the left side of the slice.", boxes=on_slice),
        record(organ, "volume", "detection", "Yes", boxes=in_volume, **yes_no),
        record(organ, "volume", "counting", "2", kind="closed_ended", boxes=in_volume),
        record(organ, "volume", "classification", "B", boxes=in_volume, **letter),
        record(organ, "volume", "localization", f"{tags}.", boxes=in_volume),
        record(organ, "volume", "captioning", "Two bright masses lie on the left side of the volume.", boxes=in_volume),
    ]


def predict(asked: Record, text: str, codec: str = "sgmri_text", **fields: object) -> Prediction:
    """The row that `infer` would write for a text."""
    decoded = get_codec(codec).decode(text, asked.ask())
    if isinstance(decoded, Invalid):
        return Prediction(id=asked.id, text=text, invalid=decoded.reason, **fields)
    return Prediction(id=asked.id, text=text, answer=decoded, **fields)


def right(asked: Record, codec: str = "sgmri_text") -> Prediction:
    """The target in the form of a codec."""
    return predict(asked, get_codec(codec).encode(asked.target, asked.ask()), codec, finish="stop")
