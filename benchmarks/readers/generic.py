"""Reads people's own data: one JSONL or CSV file with a row per question.

    python -m benchmarks prepare generic questions.csv --out data/mine

Columns (JSONL keys have the same names; `null` or an empty cell means "not given"):

| column   | needed | meaning                                                                      | CSV cell             |
|----------|--------|------------------------------------------------------------------------------|----------------------|
| images   | yes    | image files, relative to the file's folder or to `--image-root`              | `a.png;b.png`        |
| question | yes    | the question                                                                 | text                 |
| answer   | one of | the answer in words                                                          | text                 |
| label    | these  | the class (`yes`, `abnormal`, a grade)                                       | text                 |
| boxes    | three  | evidence, see below                                                          | see below            |
| choices  |        | allowed answers of a closed question; the label, or else the answer, is one  | `yes;no`             |
| task     |        | name of the task; `vqa` if not given                                         | text                 |
| answer_type |     | kind of answer, as the benchmark names it (`closed_ended`, `single_choice`)  | text                 |
| view     |        | view of each image (`ANT`, `POST`)                                           | `ANT;POST`           |
| frame    |        | slice number of each image, from 1                                           | `11;12;13`           |
| group    |        | patient or volume; the row's list of images if not given                     | text                 |
| split    |        | `train`, `val` or `test`; if not given, by a hash of the group: 80/10/10 %   | text                 |
| strata   |        | keys for reporting                                                           | `organ=knee;age=old` |
| id       |        | unique name; `<file name>:<row>` if not given                                | text                 |

A box is an image, four pixel coordinates of the original image, and a label if wanted. The image is its
number in the row *from 1*, or its view. Pixels are counted from the top left, `x1 y1` is inside, `x2 y2`
just outside, so that a box may end at the image's width and height.

    CSV     1,10,20,60,80                          ANT,10,20,60,80,left knee;POST,190,20,240,80,left knee
    JSONL   {"boxes": [{"image": 1, "xyxy": [10, 20, 60, 80], "label": "left knee"}]}    (also in a CSV cell)
            {"boxes": [[1, 10, 20, 60, 80], ["POST", 190, 20, 240, 80, "left knee"]]}

JSONL takes lists where CSV has `;`, and a bare value for a list of one. Image sizes are read from the files.
Rows are numbered from 1, in CSV without the header. A column that is not in the table is an error.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.dataset import sha256_file
from benchmarks.errors import DataError
from benchmarks.readers.base import ImageSizes, Release, RowFaults, name_share
from benchmarks.readers.tables import read_table
from benchmarks.schema import XYXY, Answer, Box, Image, Record, Source, Split

READER = "generic@1"
TRAIN_SHARE, VAL_SHARE = 0.8, 0.1
_FIX = "mend the row; the columns are described by `python -m pydoc benchmarks.readers.generic`"


class _RowBox(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    image: int | str
    xyxy: XYXY
    label: str | None = None


class _Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    images: tuple[str, ...]
    question: str
    answer: str | None = None
    label: str | None = None
    boxes: tuple[_RowBox, ...] = ()
    choices: tuple[str, ...] = ()
    task: str = "vqa"
    answer_type: str | None = None
    view: tuple[str, ...] = ()
    frame: tuple[int, ...] = ()
    group: str | None = None
    split: Literal["train", "val", "test"] | None = None
    strata: dict[str, str] = {}
    id: str | None = None


COLUMNS = _Row.__struct_fields__
_LISTS = ("images", "choices", "view", "frame")


def open_release(release: Path, image_root: Path | None = None) -> Release:
    """Opens a table of questions.

    Args:
        release: A `.jsonl` or `.csv` file.
        image_root: Folder that image paths are relative to; the file's folder if not given.

    Returns:
        The records and faults of all rows in file order.

    Raises:
        DataError: Not such a file, not UTF-8, or a CSV header with unknown, repeated or missing columns.
    """
    root = image_root or release.parent
    columns, rows = read_table(release)
    if columns is not None:
        _check_header(columns, release)
    return Release(
        items=_records(rows, release, root),
        image_root=root,
        sources={release.name: sha256_file(release)},
        reader=READER,
    )


def split_of(group: str) -> Split:
    """Split of a group by its name alone: the same on every computer, whatever other rows there are."""
    share = name_share(group)
    if share < TRAIN_SHARE:
        return "train"
    return "val" if share < TRAIN_SHARE + VAL_SHARE else "test"


def _check_header(columns: list[str], path: Path) -> None:
    problems = [_unknown(name) for name in columns if name not in COLUMNS]
    problems += [f"column {name!r} occurs twice" for name in sorted({n for n in columns if columns.count(n) > 1})]
    problems += [f"column {name!r} is missing" for name in ("images", "question") if name not in columns]
    if problems:
        raise DataError("; ".join(problems), where=f"{path}, header", fix=f"the columns are {', '.join(COLUMNS)}")


def _unknown(name: str) -> str:
    near = difflib.get_close_matches(name.strip().lower(), COLUMNS, n=1)
    return f"unknown column {name!r}" + (f", did you mean {near[0]!r}?" if near else "")


def _records(
    rows: Iterable[tuple[int, dict[str, Any] | DataError]], path: Path, root: Path
) -> Iterator[Record | DataError]:
    sizes = ImageSizes(root)
    for number, raw in rows:
        if isinstance(raw, DataError):
            yield raw
            continue
        faults = RowFaults(f"{path} row {number}", _FIX)
        row = _convert(raw, faults)
        if row is not None:
            record = _record(row, faults, sizes, path, number)
            if record is not None:
                yield record
        yield from faults.found


def _convert(raw: dict[str, Any], faults: RowFaults) -> _Row | None:
    """Checks names and types of a row."""
    for name in raw:
        if name not in COLUMNS:
            faults.add(name, _unknown(name))
    if faults.found:
        return None
    given = {name: value for name, value in raw.items() if value is not None}
    for name in _LISTS:
        if isinstance(given.get(name), (str, int)):
            given[name] = [given[name]]
    boxes = given.get("boxes")
    if isinstance(boxes, list):
        given["boxes"] = [_named(box) for box in boxes]
    try:
        return msgspec.convert(given, _Row)
    except msgspec.ValidationError as error:
        faults.add("row", str(error))
        return None


def _named(box: object) -> object:
    """`[image, x1, y1, x2, y2]`, possibly with a label, as a mapping; anything else unchanged."""
    if not isinstance(box, list) or len(box) not in (5, 6):
        return box
    return {"image": box[0], "xyxy": box[1:5], "label": box[5] if len(box) == 6 else None}


def _record(row: _Row, faults: RowFaults, sizes: ImageSizes, path: Path, number: int) -> Record | None:
    images = _images(row, faults, sizes)
    boxes = _boxes(row, faults)
    label = _label(row, faults)
    if row.answer is None and label is None and not boxes:
        faults.add("answer", "the row has no answer, label or boxes")
    name = row.id if row.id is not None else f"{path.stem}:{number}"
    faults.require(question=row.question, task=row.task, id=name)
    group = "|".join(row.images)
    if row.group is not None:
        group = row.group
        faults.require(group=group)
    if faults.found:
        return None
    return Record(
        id=name,
        benchmark="generic",
        split=row.split or split_of(group),
        task=row.task,
        group=group,
        images=tuple(images),
        question=row.question,
        choices=row.choices,
        answer_type=row.answer_type,
        target=Answer(text=row.answer, label=label, boxes=tuple(boxes)),
        strata=row.strata,
        source=Source(id=name, file=path.name, row=number),
    )


def _images(row: _Row, faults: RowFaults, sizes: ImageSizes) -> list[Image]:
    if not row.images:
        faults.add("images", "the row has no image")
    for field, values in (("view", row.view), ("frame", row.frame)):
        if values and len(values) != len(row.images):
            faults.add(field, f"{len(values)} values for {len(row.images)} images")
            return []
    images = []
    for number, path in enumerate(row.images):
        try:
            width, height = sizes.get(path)
            view = row.view[number] if row.view else None
            frame = row.frame[number] if row.frame else None
            images.append(Image(path=path, width=width, height=height, view=view, frame=frame))
        except DataError as error:
            faults.add(f"images[{number + 1}]", error.message, error.fix)
        except ValueError as error:
            faults.add(f"images[{number + 1}]", str(error))
    return images


def _boxes(row: _Row, faults: RowFaults) -> list[Box]:
    boxes = []
    for number, box in enumerate(row.boxes, start=1):
        try:
            boxes.append(Box(image=_index(box.image, row), xyxy=box.xyxy, label=box.label))
        except ValueError as error:
            faults.add(f"boxes[{number}]", str(error))
    return boxes


def _index(image: int | str, row: _Row) -> int:
    if isinstance(image, int):
        if not 1 <= image <= len(row.images):
            raise ValueError(f"box of image {image}: images are numbered from 1 to {len(row.images)}")
        return image - 1
    if row.view.count(image) != 1:
        raise ValueError(f"box of image {image!r}: not the view of exactly one image, views are {list(row.view)}")
    return row.view.index(image)


def _label(row: _Row, faults: RowFaults) -> str | None:
    if not row.choices:
        return row.label
    field, chosen = ("label", row.label) if row.label is not None else ("answer", row.answer)
    if chosen not in row.choices:
        faults.add(field, f"{chosen!r} is not one of the choices {list(row.choices)}")
    return chosen
