"""Reads the annotation tables of fastMRI+: `brain.csv` and `knee.csv`.

Zhao et al., Scientific Data 9:152, 2022; tables at github.com/microsoft/fastmri-plus, folder `Annotations` (MIT). One row per
annotation: `file,slice,study_level,x,y,width,height,label`. Slices are counted from 0, boxes are pixels of the
reconstruction *after its rows were reversed*. A study-level row speaks of the whole volume: it has no box and says
slice 0, which is not a finding on slice 0.

What is odd in the tables is kept as it is and told by the row itself: boxes without area (`Annotation.empty`), boxes
that begin at -1 (`Annotation.outside`), rows that occur twice (`duplicates`). Labels lose blanks at their ends
(`Joint Effusion ` ends in one in every knee row); spelling and inner blanks stay. Anything else that is not as described
is an error with file and row; rows are numbered from 1 without the header.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

from benchmarks.errors import SHOWN_FAULTS, DataError, fault_list

Organ = Literal["brain", "knee"]
ORGANS: Final[tuple[Organ, ...]] = ("brain", "knee")
COLUMNS: Final = ("file", "slice", "study_level", "x", "y", "width", "height", "label")
# SHA-256 of the tables of commit 67ed9a68ee33d3197f93893e8125688470c4a577 (2021-09-07).
PUBLISHED_TABLES: Final = MappingProxyType(
    {
        "brain": "38c8c9d91d708425f2297293c3a0c4ce1f537c7c272cc9b07429b2339ac1e6bf",
        "knee": "c1f4a083646cec815b67f005f8d7764313d1b82a028b90c272a4d000330d065b",
    }
)
_FIX = "get brain.csv and knee.csv again from github.com/microsoft/fastmri-plus, folder Annotations"
_INTEGER = re.compile(r"-?\d{1,6}")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
XYWH = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotation:
    """One row of a table.

    Attributes:
        volume: Name of the fastMRI file without `.h5`.
        index: Slice, counted from 0 (the table's own number).
        study_level: Whether the row speaks of the whole volume; such a row has no box.
        label: The finding, without blanks at its ends.
        box: Left, top, width, height in pixels after the rows were reversed; `None` in study-level rows.
        row: Row of the table, from 1 without the header.
    """

    volume: str
    index: int
    study_level: bool
    label: str
    box: XYWH | None
    row: int

    @property
    def empty(self) -> bool:
        """Whether there is a box and it has no area."""
        return self.box is not None and 0 in self.box[2:]

    @property
    def outside(self) -> bool:
        """Whether the box begins left of or above the picture."""
        return self.box is not None and min(self.box[:2]) < 0

    @property
    def content(self) -> tuple[str, int, bool, XYWH | None, str]:
        """All but the row number: rows of equal content are duplicates."""
        return self.volume, self.index, self.study_level, self.box, self.label


Tables = Mapping[Organ, tuple[Annotation, ...]]


def read_tables(folder: Path) -> Tables:
    """Reads both tables.

    Raises:
        DataError: A table is missing or has faults (the message lists the first 20), or a volume is in both.
    """
    tables: dict[Organ, tuple[Annotation, ...]] = {organ: read_table(folder / f"{organ}.csv") for organ in ORGANS}
    both = {row.volume for row in tables["brain"]} & {row.volume for row in tables["knee"]}
    if both:
        raise DataError(f"volume {min(both)} is in brain.csv and in knee.csv", where=str(folder), fix=_FIX)
    return tables


def read_table(path: Path) -> tuple[Annotation, ...]:
    """Reads one table, rows in file order.

    Raises:
        DataError: Missing, not UTF-8, other columns, or rows with faults; the message lists the first 20.
    """
    if not path.is_file():
        raise DataError(f"{path} does not exist", fix=_FIX)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            cells = list(csv.reader(stream, strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"not a CSV file in UTF-8: {error}", where=str(path), fix=_FIX) from error
    if not cells or tuple(cells[0]) != COLUMNS:
        found = ",".join(cells[0]) if cells else "nothing"
        raise DataError(f"the columns are {found}", where=f"{path}, header", fix=f"expected {','.join(COLUMNS)}")
    rows: list[Annotation] = []
    faults: list[DataError] = []
    for number, row in enumerate(cells[1:], start=1):
        try:
            rows.append(_annotation(row, number))
        except ValueError as error:
            faults.append(DataError(str(error), where=f"{path} row {number}", fix=_FIX))
    if len(faults) == 1:
        raise faults[0]
    if faults:
        raise DataError(f"the table has faults:\n{fault_list(faults, SHOWN_FAULTS)}", where=str(path), fix=_FIX)
    return tuple(rows)


def by_volume(rows: Iterable[Annotation]) -> dict[str, list[Annotation]]:
    """Volume -> its rows in file order; volumes in order of their names."""
    groups: dict[str, list[Annotation]] = {}
    for row in rows:
        groups.setdefault(row.volume, []).append(row)
    return dict(sorted(groups.items()))


def duplicates(rows: Iterable[Annotation]) -> Iterator[Annotation]:
    """Rows that say what an earlier row says."""
    seen = set()
    for row in rows:
        if row.content in seen:
            yield row
        seen.add(row.content)


def _annotation(cells: list[str], number: int) -> Annotation:
    """Raises `ValueError` naming the column."""
    if len(cells) != len(COLUMNS):
        raise ValueError(f"{len(cells)} cells for {len(COLUMNS)} columns")
    row = dict(zip(COLUMNS, cells, strict=True))
    if _NAME.fullmatch(row["file"]) is None:
        raise ValueError(f"column 'file': {row['file']!r} is not a fastMRI volume name")
    if row["study_level"] not in ("Yes", "No"):
        raise ValueError(f"column 'study_level': {row['study_level']!r} is neither Yes nor No")
    label = row["label"].strip()
    if not label:
        raise ValueError("column 'label' is empty")
    annotation = Annotation(
        volume=row["file"],
        index=_integer(row, "slice"),
        study_level=row["study_level"] == "Yes",
        label=label,
        box=_box(row),
        row=number,
    )
    if annotation.index < 0:
        raise ValueError(f"column 'slice': {annotation.index} is negative")
    if annotation.study_level and (annotation.box is not None or annotation.index != 0):
        raise ValueError("a study-level row has a box or another slice than 0")
    if not annotation.study_level and annotation.box is None:
        raise ValueError("a row that is not study level has no box")
    return annotation


def _box(row: dict[str, str]) -> XYWH | None:
    names = ("x", "y", "width", "height")
    given = [name for name in names if row[name] != ""]
    if not given:
        return None
    if len(given) < len(names):
        raise ValueError(f"the box has only {', '.join(given)}")
    x, y, width, height = (_integer(row, name) for name in names)
    if width < 0 or height < 0:
        raise ValueError(f"the box is {width} wide and {height} high")
    return x, y, width, height


def _integer(row: dict[str, str], name: str) -> int:
    if _INTEGER.fullmatch(row[name]) is None:
        raise ValueError(f"column {name!r}: {row[name]!r} is not an integer")
    return int(row[name])
