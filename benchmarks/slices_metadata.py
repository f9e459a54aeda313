"""Joins fastMRI+ rows with converted volumes: the volume metadata files of the release.

`brain_{train,val}_volumes.json` is nested by sequence, `knee_{train,val}_volumes.json` is flat. Every slice has an entry,
`{"slice", "image_path", "label", "bounding_boxes"}`; labels are sorted without repeats, boxes stand in the table's order,
`final_diagnosis` is the sorted set of the volume's labels. Source of the form: sgmri.md, sections 1 and 2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from benchmarks.fastmri import SEQUENCES, slice_name
from benchmarks.fastmri_plus import XYWH, Annotation, duplicates
from benchmarks.slices_quirks import Quirks
from benchmarks.slices_volume import Done

NO_AREA = "box without area"
REPEATED = "repeats an earlier row"
OFF_PICTURE = "box outside the picture"
CLIPPED = "box clipped to the picture"
NO_FRAME = "its frame is not in the volume"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """What became of a row that did not go into the metadata as it stands."""

    organ: str
    row: int
    volume: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A volume's metadata, and the rows that were left out of it or changed."""

    value: dict[str, Any]
    dropped: tuple[Remark, ...]
    changed: tuple[Remark, ...]


def volume_entry(done: Done, rows: Iterable[Annotation], quirks: Quirks) -> Entry:
    """Metadata of one volume.

    Args:
        done: The converted volume.
        rows: Its rows of the table, in file order.
        quirks: Frame numbers, boxes and study-level rows, see there.
    """
    rows = list(rows)
    repeated = {row.row for row in duplicates(rows)} if quirks.boxes == "valid" else set()
    labels: dict[int, set[str]] = {frame: set() for frame in range(1, done.slices + 1)}
    boxes: dict[int, list[dict[str, Any]]] = {frame: [] for frame in labels}
    dropped: list[Remark] = []
    changed: list[Remark] = []
    for row in rows:
        frame = quirks.frame(done.organ, row.index)
        if row.study_level and quirks.study_level == "volume":
            continue
        if frame not in labels:
            dropped.append(_remark(done, row, NO_FRAME))
            continue
        labels[frame].add(row.label)
        if row.row in repeated:
            dropped.append(_remark(done, row, REPEATED))
        elif row.box is not None:
            box, reason = row.box, ""
            if quirks.boxes == "valid":
                box, reason = _valid(row.box, done)
            if reason:
                (changed if reason == CLIPPED else dropped).append(_remark(done, row, reason))
            if reason in ("", CLIPPED):
                x, y, width, height = box
                boxes[frame].append({"x": x, "y": y, "width": width, "height": height, "label": row.label})
    slices = [
        {
            "slice": frame,
            "image_path": f"{done.folder}/{slice_name(done.volume, frame)}",
            "label": sorted(labels[frame]),
            "bounding_boxes": boxes[frame],
        }
        for frame in labels
    ]
    diagnosis = sorted({row.label for row in rows})
    value = {"volume_id": done.volume, "final_diagnosis": diagnosis, "slices": slices}
    return Entry(value=value, dropped=tuple(dropped), changed=tuple(changed))


def metadata_files(entries: Iterable[tuple[Done, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Path below `data_processing` -> contents, for every organ and split that has a volume."""
    files: dict[str, dict[str, Any]] = {}
    for done, value in entries:
        name = f"{done.organ}/{done.organ}_{done.split}_volumes.json"
        if done.organ == "brain":
            nested = files.setdefault(name, {sequence: {} for sequence in SEQUENCES})
            nested[str(done.sequence)][done.volume] = value
        else:
            files.setdefault(name, {})[done.volume] = value
    return files


def _valid(box: XYWH, done: Done) -> tuple[XYWH, str]:
    """The box inside the picture, and what is to be said of it."""
    x, y, width, height = box
    if width == 0 or height == 0:
        return box, NO_AREA
    left, top, right, bottom = max(x, 0), max(y, 0), min(x + width, done.width), min(y + height, done.height)
    if left >= right or top >= bottom:
        return box, OFF_PICTURE
    inside = (left, top, right - left, bottom - top)
    return inside, "" if inside == box else CLIPPED


def _remark(done: Done, row: Annotation, reason: str) -> Remark:
    return Remark(organ=done.organ, row=row.row, volume=done.volume, reason=reason)
