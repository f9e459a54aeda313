"""Rows of a JSONL or CSV file as plain mappings, for the generic reader.

Both forms come out alike: lists for `images`, `choices`, `view` and `frame`, a list of boxes, a mapping of
strata. Types are not checked here.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.errors import DataError

Row = dict[str, Any]
Rows = Iterable[tuple[int, Row | DataError]]
_FIX_LINE = "mend the row; one JSON object a line, UTF-8"
_FIX_CSV = "save it as comma-separated UTF-8 with double quotes around cells that hold commas"


def read_table(path: Path) -> tuple[list[str] | None, Rows]:
    """Reads a file of rows.

    Args:
        path: A `.jsonl` or `.csv` file.

    Returns:
        The CSV header (`None` for JSONL), and (row number from 1, row or fault) in file order. In CSV the
        header is not counted; in JSONL blank lines are counted but skipped.

    Raises:
        DataError: Another kind of file, missing, not UTF-8, or a CSV without a header.
    """
    if not path.exists():
        raise DataError(f"{path} does not exist", fix="check the path of the file with the questions")
    if path.suffix.lower() not in (".jsonl", ".csv") or not path.is_file():
        raise DataError(f"{path} is not a .jsonl or .csv file", fix="give the file with the questions")
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"not UTF-8: byte {error.start} is {error.object[error.start]:#04x}",
            where=str(path),
            fix="save the file as UTF-8",
        ) from error
    if path.suffix.lower() == ".jsonl":
        return None, _json_rows(text, path)
    return _csv_rows(text, path)


def strict_json(text: str) -> Any:  # noqa: ANN401 - JSON has no narrower type
    """Decodes JSON, refusing what decoders let pass: repeated keys, NaN, half surrogates.

    Raises:
        ValueError: Not strict JSON, or nested too deeply.
    """
    try:
        json.loads(text, object_pairs_hook=_unique_keys)
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def _unique_keys(pairs: list[tuple[str, Any]]) -> Row:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise ValueError(f"key {twice[0]!r} occurs twice")
    return dict(pairs)


def _json_rows(text: str, path: Path) -> Iterator[tuple[int, Row | DataError]]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        where = f"{path} row {number}"
        try:
            row = strict_json(line)
        except ValueError as error:
            yield number, DataError(f"not JSON: {error}", where=where, fix=_FIX_LINE)
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            yield number, DataError(f"not a JSON object: {line.strip()[:80]}", where=where, fix=_FIX_LINE)


def _csv_rows(text: str, path: Path) -> tuple[list[str], Rows]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(reader, [])]
    except csv.Error as error:
        raise DataError(f"not CSV: {error}", where=f"{path}, header", fix=_FIX_CSV) from error
    if len(header) == 1 and header[0].count(";") > 1:
        raise DataError(f"the columns are separated by semicolons: {header[0]}", where=f"{path}, header", fix=_FIX_CSV)
    if not any(header):
        raise DataError("the file is empty", where=str(path), fix="the first row names the columns")
    return header, _csv_body(reader, header, path)


def _csv_body(reader: Iterator[list[str]], header: list[str], path: Path) -> Iterator[tuple[int, Row | DataError]]:
    number = 0
    while True:
        where = f"{path} row {number + 1}"
        try:
            cells = next(reader, None)
        except csv.Error as error:
            # After a broken quote it is unknown where the next row starts.
            yield number + 1, DataError(f"not CSV, reading stopped here: {error}", where=where, fix=_FIX_CSV)
            return
        if cells is None:
            return
        if not cells:
            continue
        number += 1
        if len(cells) != len(header):
            message = f"{len(cells)} cells for {len(header)} columns"
            yield number, DataError(message, where=where, fix=_FIX_CSV)
            continue
        try:
            yield number, {name: _cell(name, cell.strip()) for name, cell in zip(header, cells, strict=True)}
        except ValueError as error:
            yield number, DataError(str(error), where=where, fix=_FIX_CSV)


def _cell(name: str, cell: str) -> object:
    """A cell as the value that JSONL would have; an empty cell is `None`.

    Raises:
        ValueError: The cell cannot be read; names the column.
    """
    if not cell:
        return None
    try:
        if name in ("images", "choices", "view"):
            return [part.strip() for part in cell.split(";")]
        if name == "frame":
            return [int(part) for part in cell.split(";")]
        if name == "boxes":
            return strict_json(cell) if cell.startswith("[") else [_box(part) for part in cell.split(";")]
        if name == "strata":
            return strict_json(cell) if cell.startswith("{") else dict(_pair(part) for part in cell.split(";"))
    except ValueError as error:
        raise ValueError(f"column {name!r}, cell {cell[:80]!r}: {error}") from error
    return cell


def _box(text: str) -> list[object]:
    parts = [part.strip() for part in text.split(",", 5)]
    if len(parts) < 5:
        raise ValueError("a box is image,x1,y1,x2,y2 and a label if wanted")
    image = int(parts[0]) if parts[0].isdecimal() else parts[0]
    return [image, *(float(part) for part in parts[1:5]), *parts[5:]]


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not (key.strip() and equals):
        raise ValueError("strata are written key=value;key=value")
    return key.strip(), value.strip()
