"""The record: one question about one or more images, with its target.

Every benchmark becomes rows of this type, one JSON object a line. Boxes are float pixels of the
*native* image, `(x1, y1, x2, y2)` with the origin at the top left, half open (`x1 <= x < x2`), so
that a box may end at the image's width or height. Frames are slice numbers from 1, in the
benchmark's own numbering.
"""

from __future__ import annotations

import math
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from benchmarks.errors import DataError

SCHEMA_VERSION = 1
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
XYXY = tuple[float, float, float, float]


class Image(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One image of a record.

    Attributes:
        path: Relative to the dataset's image root, `/` as separator, never leaving the root.
        width: Native width in pixels, after the file's orientation tag was applied.
        height: Native height in pixels, after the file's orientation tag was applied.
        view: Name of the view for paired views (`ANT`, `POST`).
        frame: Slice number from 1 for slices of a volume.
    """

    path: str
    width: int
    height: int
    view: str | None = None
    frame: int | None = None

    def __post_init__(self) -> None:
        check_relative(self.path)
        if self.width < 1 or self.height < 1:
            raise ValueError(f"image size {self.width}x{self.height} of {self.path!r} is not positive")
        if self.frame is not None and self.frame < 1:
            raise ValueError(f"frame {self.frame} of {self.path!r}: frames are numbered from 1")


class Box(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A box in native pixels of image number `image` (an index into the record's images)."""

    image: int
    xyxy: XYXY
    label: str | None = None

    def __post_init__(self) -> None:
        x1, y1, x2, y2 = self.xyxy
        if not all(math.isfinite(v) for v in self.xyxy):
            raise ValueError(f"box {self.xyxy} holds a value that is not a finite number")
        if not (x1 < x2 and y1 < y2):
            raise ValueError(f"box {self.xyxy} is empty or inverted: x1 < x2 and y1 < y2 must hold")


class RunLengths(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Mask as run lengths in row order, the first run is background; `size` is (height, width)."""

    size: tuple[int, int]
    counts: list[int]


class Mask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A mask of image number `image`: either a file under the image root or run lengths."""

    image: int
    path: str | None = None
    rle: RunLengths | None = None
    label: str | None = None

    def __post_init__(self) -> None:
        if (self.path is None) == (self.rle is None):
            raise ValueError("a mask needs exactly one of path and rle")
        if self.path is not None:
            check_relative(self.path)


class Answer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An answer, given as a record's target or decoded from a model's text.

    Attributes:
        text: The answer in words.
        label: The class (`yes`, `abnormal`, a grade), as the benchmark spells it.
        boxes: Evidence boxes; the label of a box is the region or finding it encloses.
        masks: Evidence masks.
        reasoning: The explanation, where the benchmark has one.
    """

    text: str | None = None
    label: str | None = None
    boxes: tuple[Box, ...] = ()
    masks: tuple[Mask, ...] = ()
    reasoning: str | None = None


class Source(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a record comes from: official id, file (relative to the release) and row from 1."""

    id: str
    file: str
    row: int


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked: the part of a record that a prompt, codec or engine may see."""

    task: str
    images: tuple[Image, ...]
    question: str
    choices: tuple[str, ...] = ()
    answer_type: str | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One question with its images and its target.

    Attributes:
        id: Unique in the benchmark.
        benchmark: Name of the benchmark (`scintiground`, `generic`, ...).
        split: `train`, `val` or `test`.
        task: The benchmark's name of the task.
        group: Patient or volume; no group is in two splits.
        images: In the order in which the model sees them.
        question: The question, without any system text.
        choices: The allowed answers of a closed question, if the benchmark lists them.
        answer_type: The benchmark's name of the kind of answer that is asked for (`closed_ended`, `single_choice`).
        target: The right answer.
        strata: Free keys for reporting (region, view scope, question type).
        source: Traces the record to the release.
    """

    id: str
    benchmark: str
    split: Split
    task: str
    group: str
    images: tuple[Image, ...]
    question: str
    target: Answer
    source: Source
    choices: tuple[str, ...] = ()
    answer_type: str | None = None
    strata: dict[str, str] = {}

    def __post_init__(self) -> None:
        for name in ("id", "benchmark", "task", "group", "question"):
            if not getattr(self, name).strip():
                raise ValueError(f"{name} is empty")
        for number in [box.image for box in self.target.boxes] + [mask.image for mask in self.target.masks]:
            if not 0 <= number < len(self.images):
                raise ValueError(f"target refers to image {number}, the record has {len(self.images)} images")

    @property
    def place(self) -> str:
        """Id, file and row, for error messages."""
        return f"record {self.id} ({self.source.file} row {self.source.row})"

    def ask(self) -> Ask:
        """The record without its target, group and strata: all that a model may be shown."""
        return Ask(
            task=self.task,
            images=self.images,
            question=self.question,
            choices=self.choices,
            answer_type=self.answer_type,
        )


def check_relative(path: str) -> None:
    """Raises `ValueError` unless `path` is relative, non-empty and stays under its root."""
    pure = PurePosixPath(path)
    if not pure.parts or pure.is_absolute() or ".." in pure.parts or "\\" in path or ":" in pure.parts[0]:
        raise ValueError(f"path {path!r} must be relative, with '/' as separator, and stay under the image root")


def encode_record(record: Record) -> bytes:
    """One JSON line without the newline; the same record always gives the same bytes."""
    return msgspec.json.encode(record, order="deterministic")


def decode_record(line: bytes | str, *, where: str) -> Record:
    """Reads one JSON line.

    Raises:
        DataError: With the path of the field (`$.target.boxes[0].xyxy`) and `where`.
    """
    try:
        return msgspec.json.decode(line, type=Record)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise DataError(
            f"not a record: {error}", where=where, fix="prepare the dataset again, or mend the named field"
        ) from error
