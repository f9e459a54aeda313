"""From DICOM files to PNG images and a file of questions that `prepare generic` reads.

The images of all files and frames, in the order of the command line, make one group (patient). With a
table of questions (JSONL or CSV of the generic reader without images, view, frame and group) every
question becomes a row; without one, a single row waits for its question and answer to be filled in.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import PIL.Image

from benchmarks.dataset import write_atomic
from benchmarks.dicom import Greys, Window, read_frames
from benchmarks.errors import DataError
from benchmarks.readers.tables import read_table

ROWS = "rows.jsonl"
_MIRROR = {"ANT": "POST", "POST": "ANT"}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_OURS = ("images", "view", "frame", "group")


@dataclass(frozen=True, slots=True, kw_only=True)
class Converted:
    """What `convert` wrote.

    Attributes:
        rows: The file of questions.
        images: PNG files, in the order of the rows' images.
        windows: Windows that were applied, one per DICOM file.
        questions: Number of rows; 0 if the questions are still to be written.
    """

    rows: Path
    images: list[Path]
    windows: list[Window]
    questions: int


def convert(
    files: Sequence[Path],
    out: Path,
    *,
    patient: str,
    views: Sequence[str] = (),
    window: Window | None = None,
    mirror: bool = False,
    questions: Path | None = None,
) -> Converted:
    """Writes one PNG per frame and the file of questions.

    Args:
        files: DICOM files of one patient.
        out: Folder to write to.
        patient: Pseudonym; begins all file names and becomes the group.
        views: Name of the view of each image; without them images are numbered as frames.
        window: See `benchmarks.dicom`.
        mirror: Adds the one image, mirrored left to right, as a stand-in for the opposite view; the rows
            say so in the stratum `stand_in`.
        questions: Table of questions.

    Raises:
        DataError: A file cannot be read, names or numbers of views are wrong, or the questions are not readable.
    """
    check_pseudonym(patient)
    asked = read_questions(questions)
    greys: list[Greys] = []
    windows: list[Window] = []
    for number, path in enumerate(files, start=1):
        frames, used = read_frames(path, window, where=f"DICOM file {number} of the command line")
        greys += frames
        windows.append(used)
    _check_views(views, len(greys), mirror=mirror)
    named = dict(zip(views, greys, strict=True)) if views else {f"{n:03d}": g for n, g in enumerate(greys, start=1)}
    base: dict[str, Any] = {"group": patient, "split": "test"}
    if mirror:
        view = views[0]
        named[_MIRROR[view]] = greys[0][:, ::-1]
        base["strata"] = {"stand_in": f"{_MIRROR[view]} is {view} mirrored"}
    if set(named) == {"ANT", "POST"}:
        named = {view: named[view] for view in ("ANT", "POST")}
    paths = [out / f"{patient}-{name}.png" for name in named]
    base["images"] = [path.name for path in paths]
    base["view" if views else "frame"] = list(named) if views else list(range(1, len(paths) + 1))
    write_rows(out, dict(zip(paths, named.values(), strict=True)), base, asked)
    return Converted(rows=out / ROWS, images=paths, windows=windows, questions=len(asked))


def check_pseudonym(name: str) -> None:
    """Raises `DataError` unless the name can begin file names; it cannot know whether it is a real one."""
    if _NAME.fullmatch(name) is None:
        raise DataError(
            f"--id {name!r} is not a pseudonym", fix="letters, digits, _ and -, 64 at most, none of the real name"
        )


def read_questions(path: Path | None) -> list[dict[str, Any]]:
    """Rows of a table of questions, without what is filled in from the images; none if there is no table.

    Raises:
        DataError: The table cannot be read, or a row names images, view, frame or group.
    """
    if path is None:
        return []
    rows = []
    for number, row in read_table(path)[1]:
        if isinstance(row, DataError):
            raise row
        given = {name: value for name, value in row.items() if value is not None}
        ours = [name for name in _OURS if name in given]
        if ours:
            raise DataError(
                f"columns {', '.join(ours)} are filled in from the files",
                where=f"{path} row {number}",
                fix="leave them out of the questions",
            )
        rows.append(given)
    return rows


def write_rows(out: Path, pictures: dict[Path, Greys], base: dict[str, Any], asked: list[dict[str, Any]]) -> None:
    """Writes pictures and the file of questions, in which the rows of other groups stay.

    Args:
        out: Folder to write to; may hold other patients or volumes.
        pictures: PNG path -> grey values.
        base: What all rows say: images, frame or view, group, split, strata.
        asked: Questions; without any, one row waits for its question and answer.

    Raises:
        DataError: Writing failed, or questions that were filled in by hand would be lost.
    """
    rows = [_merge(base, row) for row in asked] or [{**base, "question": "", "answer": ""}]
    kept = _others(out / ROWS, base["group"], asked=bool(asked))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for path, grey in pictures.items():
            buffer = io.BytesIO()
            PIL.Image.fromarray(grey).save(buffer, "PNG")
            write_atomic(path, buffer.getvalue())
        write_atomic(out / ROWS, b"".join(line + b"\n" for line in [*kept, *map(msgspec.json.encode, rows)]))
    except OSError as error:
        raise DataError(
            f"cannot write: {error.strerror}", where=str(error.filename or out), fix="check space and permissions"
        ) from error


def _others(path: Path, group: str, *, asked: bool) -> list[bytes]:
    """Lines of a file of questions that are of other groups."""
    if not path.is_file():
        return []
    kept = []
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            row = msgspec.json.decode(line, type=dict[str, Any]) if line.strip() else {}
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise DataError(
                f"not a row of questions: {error}", where=f"{path} row {number}", fix="mend it, or give another --out"
            ) from error
        if row.get("group") != group:
            kept += [line] if row else []
        elif row.get("question") and not asked:
            raise DataError(
                f"the row has a question about {group}, which would be lost",
                where=f"{path} row {number}",
                fix="give another --out, or the questions with --questions, or take the row out",
            )
    return kept


def _merge(base: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    if "strata" in base and isinstance(row.get("strata", {}), dict):
        row = {**row, "strata": {**base["strata"], **row.get("strata", {})}}
    return {**base, **row}


def _check_views(views: Sequence[str], images: int, *, mirror: bool) -> None:
    problem = ""
    if any(_NAME.fullmatch(view) is None for view in views) or len(set(views)) < len(views):
        problem = f"views {', '.join(views)} are not different names of letters and digits"
    elif views and len(views) != images:
        problem = f"{len(views)} views are named for {images} images"
    elif mirror and (len(views) != 1 or views[0] not in _MIRROR):
        problem = "--mirror needs one image with --view ANT or --view POST"
    if problem:
        raise DataError(problem, fix="give --view once per image, in the order of files and frames")
