"""The prepared dataset: a folder of `records-<split>.jsonl` files and `dataset.json`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from benchmarks.errors import DataError
from benchmarks.schema import SCHEMA_VERSION, SPLITS, Record, decode_record, encode_record

INFO = "dataset.json"
S = TypeVar("S", bound=msgspec.Struct)


class DatasetInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Contents of `dataset.json`.

    Attributes:
        name: Name of the dataset, for tables.
        benchmark: Benchmark of its records; picks the scorer.
        schema_version: Version of the record type.
        reader: Reader and its version, `scintiground@1`.
        image_root: Folder of the images; relative to the dataset folder if it lies inside it.
        counts: split -> task -> number of records.
        sources: Source file (relative to the release) -> SHA-256.
        files: `records-<split>.jsonl` -> SHA-256.
        content_hash: SHA-256 over the record files; goes into every manifest.
    """

    name: str
    benchmark: str
    reader: str
    image_root: str
    counts: dict[str, dict[str, int]]
    sources: dict[str, str]
    files: dict[str, str]
    content_hash: str
    schema_version: int = SCHEMA_VERSION


def records_path(folder: Path, split: str) -> Path:
    """Path of a split's record file."""
    return folder / f"records-{split}.jsonl"


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's bytes, hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def known_sha256(path: Path) -> str:
    """As `sha256_file`, read once per process for as long as size and times of the file stay what they are.

    Raises:
        OSError: The file cannot be read.
    """
    stat = path.stat()
    return _sha256_at(path, (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@lru_cache(maxsize=2**20)
def _sha256_at(path: Path, state: tuple[int, int, int]) -> str:  # noqa: ARG001 - the state is the key of the cache
    return sha256_file(path)


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file under a temporary name beside it, flushes it to disk and renames it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def read_struct(path: Path, struct: type[S], *, what: str, fix: str) -> S:
    """Reads a JSON file of a known type.

    Raises:
        DataError: The file does not hold it; `what` names the type in the message.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=struct)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise DataError(f"not {what}: {error}", where=str(path), fix=fix) from error


def write_dataset(
    folder: Path,
    records: Iterable[Record],
    *,
    name: str,
    benchmark: str,
    reader: str,
    image_root: Path,
    sources: dict[str, str],
) -> DatasetInfo:
    """Writes records (kept in the given order within a split) and `dataset.json`, the latter last.

    Raises:
        DataError: A repeated id, or a group in two splits; nothing usable is left behind.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / INFO).unlink(missing_ok=True)
    lines: dict[str, list[bytes]] = {split: [] for split in SPLITS}
    counts: dict[str, dict[str, int]] = {}
    seen: dict[str, str] = {}
    group_split: dict[str, tuple[str, str]] = {}
    for record in records:
        where = f"{record.source.file} row {record.source.row}, record {record.id}"
        if record.id in seen:
            raise DataError(f"id {record.id!r} occurs twice", where=f"{where}; first in {seen[record.id]}")
        seen[record.id] = where
        split, first = group_split.setdefault(record.group, (record.split, where))
        if split != record.split:
            raise DataError(
                f"group {record.group!r} is in {split} and in {record.split}",
                where=f"{first}; {where}",
                fix="a patient or volume may be in one split only: mend the release's split column",
            )
        lines[record.split].append(encode_record(record))
        tasks = counts.setdefault(record.split, {})
        tasks[record.task] = tasks.get(record.task, 0) + 1
    files = {}
    for split in SPLITS:
        path = records_path(folder, split)
        if not lines[split]:
            path.unlink(missing_ok=True)
            continue
        write_atomic(path, b"\n".join(lines[split]) + b"\n")
        files[path.name] = sha256_file(path)
    info = DatasetInfo(
        name=name,
        benchmark=benchmark,
        reader=reader,
        image_root=_relative_root(folder, image_root),
        counts=counts,
        sources=sources,
        files=files,
        content_hash=hashlib.sha256(msgspec.json.encode(files, order="deterministic")).hexdigest(),
    )
    write_atomic(folder / INFO, msgspec.json.format(msgspec.json.encode(info), indent=1))
    return info


def _relative_root(folder: Path, image_root: Path) -> str:
    folder, image_root = folder.resolve(), image_root.resolve()
    return image_root.relative_to(folder).as_posix() if image_root.is_relative_to(folder) else str(image_root)


def load_info(folder: Path) -> DatasetInfo:
    """Reads `dataset.json`.

    Raises:
        DataError: The folder is not a prepared dataset, or was written by another schema version.
    """
    path = folder / INFO
    if not path.is_file():
        raise DataError(
            f"{folder} is not a prepared dataset: {INFO} is missing",
            fix="make one with `python -m benchmarks prepare`",
        )
    info = read_struct(path, DatasetInfo, what="a dataset description", fix="prepare again")
    if info.schema_version != SCHEMA_VERSION:
        raise DataError(
            f"written with record schema {info.schema_version}, this program reads {SCHEMA_VERSION}",
            where=str(path),
            fix="prepare the dataset again",
        )
    return info


def image_root(folder: Path) -> Path:
    """Absolute image root of a prepared dataset."""
    return (folder / load_info(folder).image_root).resolve()


def checked_records(folder: Path, split: str) -> Path:
    """The record file of a split, after checking that it is the one that was prepared.

    Raises:
        DataError: The split does not exist, or its file changed since preparation.
    """
    info = load_info(folder)
    path = records_path(folder, split)
    if path.name not in info.files or not path.is_file():
        raise DataError(
            f"{folder} has no split {split!r}; it has {', '.join(sorted(info.counts)) or 'none'}",
            fix="choose one of these, or prepare again",
        )
    if sha256_file(path) != info.files[path.name]:
        raise DataError(
            "the record file is not the one that was prepared (its SHA-256 differs)",
            where=str(path),
            fix="prepare the dataset again; records are not edited by hand",
        )
    return path


def read_records(folder: Path, split: str) -> Iterator[Record]:
    """Streams the records of a split in file order.

    Raises:
        DataError: The split does not exist, its file changed since preparation, or a row is broken.
    """
    path = checked_records(folder, split)
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            yield decode_record(line, where=f"{path} row {number}")
