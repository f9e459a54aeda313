"""Loading a prediction folder with its dataset, and joining the two by id.

A run is scored only if it answers exactly the records of its split: missing, extra and repeated ids
and a dataset other than the predicted one are refused, whatever the profile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from benchmarks.dataset import DatasetInfo, load_info, read_records
from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS, Manifest, Prediction, read_manifest, read_predictions
from benchmarks.schema import Record

SHOWN = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A prediction folder joined with its records.

    Attributes:
        name: Name in tables, unique among the runs loaded together.
        folder: The prediction folder.
        data: The dataset folder that was read.
        manifest: The folder's manifest.
        info: Description of the dataset.
        records: The expected records, in dataset order.
        predictions: One per record, in the same order.
    """

    name: str
    folder: Path
    data: Path
    manifest: Manifest
    info: DatasetInfo
    records: tuple[Record, ...]
    predictions: tuple[Prediction, ...]


def load_runs(folders: Sequence[Path], data: Path | None = None) -> list[LoadedRun]:
    """Loads prediction folders that belong in one table.

    Args:
        folders: Prediction folders.
        data: Dataset folder to use instead of the one in each manifest; its hash is checked all the same.

    Raises:
        DataError: A folder is unfinished or broken, its dataset is missing or another one, ids do not
            match, or the folders do not answer the same records.
    """
    manifests = [read_manifest(folder) for folder in folders]
    for folder, manifest in zip(folders, manifests, strict=True):
        _check_same_records(folders[0], manifests[0], folder, manifest)
    cache: dict[tuple[Path, str], tuple[DatasetInfo, tuple[Record, ...]]] = {}
    runs = []
    for name, folder, manifest in zip(_names(folders, manifests), folders, manifests, strict=True):
        source = data if data is not None else Path(manifest.dataset)
        key = (source, manifest.split)
        if key not in cache:
            cache[key] = _read_dataset(folder, manifest, source)
        info, records = cache[key]
        _check_hash(folder, manifest, source, info)
        predictions = join(records, read_predictions(folder), where=folder / PREDICTIONS)
        runs.append(
            LoadedRun(
                name=name,
                folder=folder,
                data=source,
                manifest=manifest,
                info=info,
                records=records,
                predictions=predictions,
            )
        )
    return runs


def join(records: Sequence[Record], rows: Sequence[Prediction], *, where: Path) -> tuple[Prediction, ...]:
    """Brings predictions into the order of the records.

    Raises:
        DataError: Ids are missing, unexpected or repeated (counts and first offenders), or a row does
            not hold exactly one of `answer`, `invalid` and `error`.
    """
    by_id = {row.id: row for row in rows}
    expected = {record.id for record in records}
    faults = [
        _offenders("missing", [record.id for record in records if record.id not in by_id]),
        _offenders("unexpected", [row_id for row_id in by_id if row_id not in expected]),
        _offenders("repeated", [row_id for row_id, count in Counter(row.id for row in rows).items() if count > 1]),
    ]
    if any(faults):
        raise DataError(
            f"predictions do not cover the {len(records)} expected records exactly: "
            + "; ".join(fault for fault in faults if fault),
            where=str(where),
            fix="predict the split again with `python -m infer`; files are not edited by hand",
        )
    for number, row in enumerate(rows, start=1):
        given = [name for name in ("answer", "invalid", "error") if getattr(row, name) is not None]
        if len(given) != 1:
            raise DataError(
                f"a row holds exactly one of answer, invalid and error; this one has {' and '.join(given) or 'none'}",
                where=f"{where} row {number}, record {row.id}",
                fix="predict again, or import the file with `python -m infer import`, which decodes the texts",
            )
    return tuple(by_id[record.id] for record in records)


def _offenders(kind: str, ids: Sequence[str]) -> str:
    if not ids:
        return ""
    more = f" and {len(ids) - SHOWN} more" if len(ids) > SHOWN else ""
    return f"{len(ids)} {kind} ({', '.join(ids[:SHOWN])}{more})"


def _read_dataset(folder: Path, manifest: Manifest, source: Path) -> tuple[DatasetInfo, tuple[Record, ...]]:
    if not source.is_dir():
        raise DataError(
            f"the dataset folder {source} does not exist",
            where=str(folder / "manifest.json"),
            fix="name the dataset folder with --data; its hash is checked",
        )
    info = load_info(source)
    _check_hash(folder, manifest, source, info)
    return info, tuple(islice(read_records(source, manifest.split), manifest.limit))


def _check_hash(folder: Path, manifest: Manifest, source: Path, info: DatasetInfo) -> None:
    if info.content_hash != manifest.dataset_hash:
        raise DataError(
            f"{source} is not the dataset that was predicted: its hash is {info.content_hash[:12]}, "
            f"the predictions were made on {manifest.dataset_hash[:12]}",
            where=str(folder / "manifest.json"),
            fix="give the right folder with --data, or predict again on this dataset",
        )


def _check_same_records(first: Path, expected: Manifest, folder: Path, manifest: Manifest) -> None:
    for field in ("dataset_hash", "split", "limit"):
        ours, theirs = getattr(expected, field), getattr(manifest, field)
        if ours != theirs:
            raise DataError(
                f"these folders do not belong in one table: {field} is {ours!r} in {first} and {theirs!r} in {folder}",
                where=str(folder / "manifest.json"),
                fix="score them in separate commands, or predict both on the same records",
            )


def _names(folders: Sequence[Path], manifests: Sequence[Manifest]) -> list[str]:
    """Names of the manifests; where two agree, the folder is added, and a number if even that agrees."""
    count = Counter(manifest.name for manifest in manifests)
    names: list[str] = []
    for folder, manifest in zip(folders, manifests, strict=True):
        name = manifest.name if count[manifest.name] == 1 else f"{manifest.name} ({folder.name})"
        taken = sum(other == name or other.startswith(f"{name} #") for other in names)
        names.append(name if not taken else f"{name} #{taken + 1}")
    return names
