"""Checks records and images, and lists every fault instead of the first.

Preparation refuses a release with these checks; `python -m benchmarks validate` repeats them on a prepared
dataset, where files may have changed since.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from tqdm import tqdm

from benchmarks.dataset import image_root, load_info, records_path, sha256_file
from benchmarks.errors import DataError
from benchmarks.images import load_image
from benchmarks.registry import Rules, find
from benchmarks.schema import SPLITS, Image, Record, decode_record

_THREADS = 4
_FIX_RECORD = "mend the source and prepare again"


@dataclass(slots=True)
class Findings:
    """Result of the checks.

    Attributes:
        faults: What makes the data unusable.
        warnings: What may be intended, but should be looked at.
    """

    faults: list[DataError] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def source_of(record: Record) -> str:
    """Place of a record in its release, for error messages."""
    return f"{record.source.file} row {record.source.row}, record {record.id}"


def check_records(placed: Iterable[tuple[str, Record]]) -> Findings:
    """Checks records one by one and against each other.

    Args:
        placed: (place for messages, record) in any order.

    Returns:
        Faults: boxes outside their image, broken rules of the benchmark, repeated ids, a group in two splits.
        Warnings: groups of two splits that are equal but for blanks and case; images used in two splits.
    """
    findings = Findings()
    rules: dict[str, Rules | None] = {}
    ids: dict[str, str] = {}
    groups: dict[str, dict[str, str]] = {}
    images: dict[str, dict[str, str]] = {}
    for where, record in placed:
        if record.benchmark not in rules:
            rules[record.benchmark] = _rules(record.benchmark, where, findings)
        findings.faults.extend(_record_faults(record, where, rules[record.benchmark]))
        if ids.setdefault(record.id, where) != where:
            findings.faults.append(
                DataError(
                    f"id {record.id!r} occurs twice",
                    where=f"{where}, field id; first in {ids[record.id]}",
                    fix="ids must be unique: remove one of the rows or rename it",
                )
            )
        groups.setdefault(record.group, {}).setdefault(record.split, where)
        for image in record.images:
            images.setdefault(image.path, {}).setdefault(record.split, where)
    _check_groups(groups, findings)
    for path, splits in images.items():
        if len(splits) > 1:
            findings.warnings.append(f"image {path!r} is in several splits: {_places(splits)}")
    return findings


def check_images(records: Iterable[Record], root: Path) -> list[DataError]:
    """Decodes every image once, in several threads with a progress bar, and compares its size.

    Args:
        records: Records whose images are checked; an image with two different sizes is checked twice.
        root: Image root.

    Returns:
        One fault for each bad image, naming the first record that uses it.
    """
    first: dict[tuple[str, int, int], tuple[Image, str]] = {}
    for record in records:
        for number, image in enumerate(record.images):
            where = f"{source_of(record)}, field images[{number}]"
            first.setdefault((image.path, image.width, image.height), (image, where))

    def check(item: tuple[Image, str]) -> DataError | None:
        image, where = item
        try:
            load_image(root, image, where=where)
        except DataError as error:
            return error
        return None

    with ThreadPoolExecutor(_THREADS) as pool:
        results = pool.map(check, first.values())
        shown = tqdm(results, total=len(first), desc="checking images", unit="image", leave=False)
        return [error for error in shown if error is not None]


def validate_dataset(folder: Path) -> tuple[int, Findings]:
    """Checks a prepared dataset: record files against their hashes, every row, every image.

    Returns:
        Number of readable records, and the findings.

    Raises:
        DataError: The folder is not a prepared dataset.
    """
    info = load_info(folder)
    broken: list[DataError] = []
    placed: list[tuple[str, Record]] = []
    for split in SPLITS:
        path = records_path(folder, split)
        if path.name not in info.files:
            if path.is_file():
                broken.append(DataError(f"{path} is not listed in dataset.json", fix="prepare the dataset again"))
            continue
        if not path.is_file():
            broken.append(DataError(f"{path} is missing", fix="prepare the dataset again"))
            continue
        if sha256_file(path) != info.files[path.name]:
            broken.append(
                DataError(
                    "the record file was changed after preparation (its SHA-256 differs)",
                    where=str(path),
                    fix="prepare the dataset again; records are not edited by hand",
                )
            )
        for item in _decoded(path, split):
            if isinstance(item, DataError):
                broken.append(item)
            else:
                placed.append(item)
    findings = check_records(placed)
    findings.faults = broken + findings.faults
    findings.faults += check_images((record for _, record in placed), image_root(folder))
    return len(placed), findings


def _decoded(path: Path, split: str) -> Iterator[tuple[str, Record] | DataError]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{path.name} row {number}"
            try:
                record = decode_record(line, where=where)
            except DataError as error:
                yield error
                continue
            if record.split != split:
                yield DataError(
                    f"split {record.split!r} in the file of {split}", where=f"{where}, field split", fix=_FIX_RECORD
                )
            yield f"{where}, record {record.id}", record


def _rules(benchmark: str, where: str, findings: Findings) -> Rules | None:
    try:
        return find(benchmark).rules
    except DataError as error:
        findings.faults.append(DataError(error.message, where=f"{where}, field benchmark", fix=error.fix))
        return None


def _record_faults(record: Record, where: str, rules: Rules | None) -> Iterator[DataError]:
    if not record.images:
        yield DataError("the record has no image", where=f"{where}, field images", fix=_FIX_RECORD)
    for number, box in enumerate(record.target.boxes):
        image = record.images[box.image]
        x1, y1, x2, y2 = box.xyxy
        if x1 < 0 or y1 < 0 or x2 > image.width or y2 > image.height:
            yield DataError(
                f"box {list(box.xyxy)} lies outside the {image.width}x{image.height} image {image.path!r}",
                where=f"{where}, field target.boxes[{number}]",
                fix="boxes are pixels of the original image, x1 y1 x2 y2; is it another size, or x y width height?",
            )
    for name, message in rules(record) if rules is not None else ():
        yield DataError(message, where=f"{where}, field {name}", fix=_FIX_RECORD)


def _check_groups(groups: dict[str, dict[str, str]], findings: Findings) -> None:
    similar: dict[str, list[str]] = {}
    for group, splits in groups.items():
        similar.setdefault(unicodedata.normalize("NFKC", group).strip().lower(), []).append(group)
        if len(splits) > 1:
            findings.faults.append(
                DataError(
                    f"group {group!r} is in several splits: {_places(splits)}",
                    where="field group",
                    fix="a patient or volume may be in one split only: mend the split column",
                )
            )
    for names in similar.values():
        splits = {split: where for name in names for split, where in groups[name].items()}
        if len(names) > 1 and len(splits) > 1:
            findings.warnings.append(
                f"groups {', '.join(map(repr, names))} differ only in blanks or case and are in several splits: "
                f"{_places(splits)}"
            )


def _places(splits: dict[str, str]) -> str:
    return "; ".join(f"{split} ({where})" for split, where in splits.items())
