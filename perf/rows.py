"""The rows that `job`, `train` and `infer` read: one question about some images, with its answer."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import msgspec

from benchmarks.errors import DataError

TASKS = ("volumes", "pairs")


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A question; rows with equal `images` are about the same pictures.

    Attributes:
        id: Unique in its file.
        images: Paths, absolute or relative to the file's folder.
        question: What is asked, without any system text.
        answer: The right answer.
    """

    id: str
    images: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    question: str
    answer: str


def rows_file(folder: Path, task: str) -> Path:
    """Where the rows of a task are."""
    return folder / f"{task}.plain.jsonl"


def write_rows(folder: Path, task: str, rows: Iterable[Row]) -> None:
    """Writes the rows of a task."""
    rows_file(folder, task).write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))


def read_rows(folder: Path, task: str, count: int) -> list[Row]:
    """The first rows of a task, in file order.

    Raises:
        DataError: The file is missing or has fewer rows, or one of them is no row.
    """
    file = rows_file(folder, task)
    try:
        with file.open("rb") as lines:
            first = list(itertools.islice(lines, count))
    except OSError as error:
        raise DataError(
            f"the rows cannot be read: {error.strerror}",
            where=str(file),
            fix="`python -m perf workload` writes such a folder",
        ) from error
    if len(first) < count:
        raise DataError(f"{len(first)} rows, {count} questions", where=str(file), fix="ask for fewer questions")
    return [_decode(line, f"{file} row {number}") for number, line in enumerate(first, start=1)]


def _decode(line: bytes, where: str) -> Row:
    try:
        return msgspec.json.decode(line, type=Row)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise DataError(f"not a row: {error}", where=where, fix="give it id, images, question and answer") from error
