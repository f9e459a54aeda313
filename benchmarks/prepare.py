"""Turns a release into a prepared dataset, or refuses it with the list of its faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.dataset import DatasetInfo, write_atomic, write_dataset
from benchmarks.errors import SHOWN_FAULTS, DataError, fault_list
from benchmarks.readers.base import Dropped, Release
from benchmarks.registry import Entry, find
from benchmarks.schema import Record
from benchmarks.validate import check_images, check_records, source_of

DROPPED = "dropped.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What came of a release.

    Attributes:
        info: The dataset's description.
        warnings: What may be intended, but should be looked at.
        dropped: (kind, reason) -> how many were left out; `dropped.json` in the dataset's folder lists them.
    """

    info: DatasetInfo
    warnings: list[str]
    dropped: Counter[tuple[str, str]]


def prepare(
    name: str,
    release: Path,
    out: Path,
    *,
    image_root: Path | None = None,
    image_check: bool = True,
    benchmark: str | None = None,
    settings: Mapping[str, str] | None = None,
) -> Prepared:
    """Reads, checks and writes.

    Args:
        name: Name of the reader in the registry.
        release: What the reader reads: a folder, or a file for `generic`.
        out: Folder of the prepared dataset; its last part becomes the dataset's name.
        image_root: Folder of the images, if they do not lie in the release.
        image_check: Whether every image is opened; without it missing images show only in training.
        benchmark: Benchmark of the records (its rules and scorer apply); by default the reader's name.
        settings: Options of the reader, by name as text.

    Raises:
        DataError: Any fault in the release; the message lists the first 20 and their number.
    """
    entry = find(name)
    target = find(benchmark) if benchmark is not None else entry
    if name not in (target.name, "generic"):
        raise DataError(
            f"records of reader {name!r} cannot become benchmark {target.name!r}",
            fix="--benchmark is for `prepare generic`",
        )
    if out.exists() and not out.is_dir():
        raise DataError(f"{out} exists and is not a folder", fix="choose another --out")
    if image_root is not None and not image_root.is_dir():
        raise DataError(f"image root {image_root} is not a folder", fix="check --image-root")
    opened = entry.open_release(release, image_root, settings or {})
    records, broken, dropped = _read(opened, target)
    findings = check_records((source_of(record), record) for record in records)
    findings.faults = broken + findings.faults
    if image_check:
        findings.faults += check_images(records, opened.image_root)
    if not records and not findings.faults:
        findings.faults.append(DataError("the release has no rows", where=str(release), fix="check the path"))
    _refuse(findings.faults, release)
    try:
        info = write_dataset(
            out,
            records,
            name=out.resolve().name,
            benchmark=target.name,
            reader=opened.reader,
            image_root=opened.image_root,
            sources=opened.sources,
        )
        if dropped:
            write_atomic(out / DROPPED, _listed(dropped))
        else:
            (out / DROPPED).unlink(missing_ok=True)
    except OSError as error:
        raise DataError(
            f"the dataset cannot be written: {error.strerror}",
            where=str(error.filename or out),
            fix="check space and permissions, then run the same command again",
        ) from error
    counts = Counter((item.kind, item.reason) for item in dropped)
    return Prepared(info=info, warnings=findings.warnings, dropped=counts)


def _read(opened: Release, target: Entry) -> tuple[list[Record], list[DataError], list[Dropped]]:
    """What a release holds: records under the benchmark's name, faults, and what is left out."""
    records: list[Record] = []
    broken: list[DataError] = []
    dropped: list[Dropped] = []
    for item in opened.items:
        if isinstance(item, DataError):
            broken.append(item)
        elif isinstance(item, Dropped):
            dropped.append(item)
        else:
            records.append(item if item.benchmark == target.name else _as_benchmark(item, target))
    return records, broken, dropped


def _listed(dropped: Sequence[Dropped]) -> bytes:
    """The report of what was left out: counts, then each with its place."""
    counts = Counter(f"{item.kind}: {item.reason}" for item in dropped)
    items = [{"kind": item.kind, "reason": item.reason, "where": item.where} for item in dropped]
    return msgspec.json.format(msgspec.json.encode({"counts": counts, "items": items}), indent=1) + b"\n"


def _refuse(faults: Sequence[DataError], release: Path) -> None:
    if not faults:
        return
    if len(faults) == 1:
        raise faults[0]
    raise DataError(
        f"nothing was written, the release has faults:\n{fault_list(faults, SHOWN_FAULTS)}",
        where=str(release),
        fix="mend them and run the same command again",
    )


def _as_benchmark(record: Record, entry: Entry) -> Record:
    """The same record under another benchmark's name, with the strata that its scorer needs."""
    strata = {**(entry.strata(record) if entry.strata is not None else {}), **record.strata}
    return msgspec.structs.replace(record, benchmark=entry.name, strata=strata)
