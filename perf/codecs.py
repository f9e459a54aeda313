"""How fast answers are written and read: as location codes on a canvas, and as pixels in JSON; and geometry alone.

The baseline is `scintiground_json`, the release's own form, whose boxes are pixels of their view. `loc_tokens` has
more to do: it plans the canvas and moves every box there and back. `perf.canvas` prints what is measured here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.canvas import plan_layout
from benchmarks.schema import Answer, Ask, Box, Record
from collators.codecs.base import Codec, Invalid
from collators.codecs.registry import get_codec
from perf.rounds import Spread, alternating, spread
from recipes.inputs import Canvas

CODECS = ("scintiground_json", "loc_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class CodecFigures:
    """What a codec takes and what it loses.

    Attributes:
        encode: Answers written per second.
        decode: Texts read per second.
        changed: Answers that come back with another class, sentence, view or label, or not at all.
        moved: How far an edge of those that come back is moved at most, in native pixels across and down.
    """

    encode: Spread
    decode: Spread
    changed: int
    moved: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class GeometryFigures:
    """What the way of boxes to the canvas and back takes and loses.

    Attributes:
        boxes: Boxes placed and located per second, canvases planned before.
        moved: How far an edge is moved at most, in native pixels across and down.
        half_bin: How far a location code may move an edge, in native pixels across and down.
    """

    boxes: Spread
    moved: tuple[float, float]
    half_bin: tuple[float, float]


def measure_codecs(records: Sequence[Record], canvas: Canvas, *, rounds: int) -> dict[str, CodecFigures]:
    """Writes the answers of the records, and reads them again, with each codec in turn."""
    codecs = {name: get_codec(name, canvas) for name in CODECS}
    pairs = [(record.target, record.ask()) for record in records]
    # Once before the clock starts; what is lost is the same every time.
    texts = {name: list(_write(codec, pairs)) for name, codec in codecs.items()}
    back = {name: list(_read(codec, pairs, texts[name])) for name, codec in codecs.items()}
    written: dict[str, list[float]] = {name: [] for name in codecs}
    read: dict[str, list[float]] = {name: [] for name in codecs}
    for name in alternating(CODECS, rounds):
        written[name].append(_rate(_write(codecs[name], pairs)))
        read[name].append(_rate(_read(codecs[name], pairs, texts[name])))
    figures: dict[str, CodecFigures] = {}
    for name in CODECS:
        kept = [
            (answer, other)
            for (answer, _), other in zip(pairs, back[name], strict=True)
            if isinstance(other, Answer) and _without_places(answer) == _without_places(other)
        ]
        figures[name] = CodecFigures(
            encode=spread(written[name], 0),
            decode=spread(read[name], 0),
            changed=len(pairs) - len(kept),
            moved=_moved([both for answer, other in kept for both in zip(answer.boxes, other.boxes, strict=True)]),
        )
    return figures


def measure_geometry(records: Sequence[Record], canvas: Canvas, *, rounds: int) -> GeometryFigures:
    """Takes every box of the records to the canvas and back.

    Raises:
        ValueError: A box is not found on its view: the geometry is broken.
    """
    boxes = [(plan_layout(canvas, record.images), box) for record in records for box in record.target.boxes]
    pairs: list[tuple[Box, Box]] = []
    for layout, box in boxes:
        located = layout.locate(layout.place(box.image, box.xyxy))
        if isinstance(located, str) or located[0] != box.image:
            raise ValueError(f"box {box.xyxy} of image {box.image} is located as {located}")
        pairs.append((box, Box(image=box.image, xyxy=located[1])))
    rates = [_rate(layout.locate(layout.place(box.image, box.xyxy)) for layout, box in boxes) for _ in range(rounds)]
    bins = [layout.half_bin() for layout, _ in boxes]
    half_bin = max(across for across, _ in bins), max(down for _, down in bins)
    return GeometryFigures(boxes=spread(rates, 0), moved=_moved(pairs), half_bin=half_bin)


def _write(codec: Codec, pairs: Sequence[tuple[Answer, Ask]]) -> Iterator[str]:
    return (codec.encode(answer, ask) for answer, ask in pairs)


def _read(codec: Codec, pairs: Sequence[tuple[Answer, Ask]], texts: Sequence[str]) -> Iterator[Answer | Invalid]:
    return (codec.decode(text, ask) for text, (_, ask) in zip(texts, pairs, strict=True))


def _rate(results: Iterator[object]) -> float:
    """Results per second."""
    start = time.perf_counter()
    count = sum(1 for _ in results)
    return count / (time.perf_counter() - start)


def _without_places(answer: Answer) -> tuple[object, ...]:
    """All that a codec must keep as it is."""
    return answer.label, answer.text, tuple((box.image, box.label) for box in answer.boxes)


def _moved(pairs: Sequence[tuple[Box, Box]]) -> tuple[float, float]:
    """Largest distance of an edge of two boxes, across and down."""
    across, down = 0.0, 0.0
    for first, second in pairs:
        steps = [abs(a - b) for a, b in zip(first.xyxy, second.xyxy, strict=True)]
        across, down = max(across, steps[0], steps[2]), max(down, steps[1], steps[3])
    return across, down
