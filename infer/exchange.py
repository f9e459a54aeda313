"""Official submission files: writing ours, reading those of others.

What a file looks like is the benchmark's own affair: a module per benchmark, named in one table, writes and reads it. That
a folder is whole, and how it is written, is the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol, cast

import msgspec

from benchmarks.dataset import load_info, read_records, write_atomic
from benchmarks.errors import DataError
from benchmarks.predictions import (
    MANIFEST,
    PREDICTIONS,
    Manifest,
    Prediction,
    encode_prediction,
    read_manifest,
    read_predictions,
)
from benchmarks.schema import Record
from collators.codecs.base import Decode
from collators.codecs.registry import get_codec

# Benchmark -> module of its official form (`Exchange`).
EXCHANGES: Final[Mapping[str, str]] = {
    "scintiground": "infer.exchange_scintiground",
    "sgmri": "infer.exchange_sgmri",
}


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What an official file holds.

    Attributes:
        rows: One per record, in the order of the records.
        notes: What was left out, in words.
        weights: The model, if the file names it.
        environment: What else the file says of how it was made.
    """

    rows: list[Prediction]
    notes: list[str] = []
    weights: str | None = None
    environment: dict[str, object] = {}


class Imported(msgspec.Struct, frozen=True, kw_only=True):
    """A finished import: the prediction folder, and what was left out, in words."""

    folder: Path
    notes: list[str]


class Exchange(Protocol):
    """The official form of a benchmark: a module with these names.

    Attributes:
        CODEC: How texts are read unless the user says otherwise.
    """

    CODEC: str

    def write(self, records: Sequence[Record], rows: Sequence[Prediction], manifest: Manifest, out: Path) -> list[Path]:
        """Writes one prediction per record, both in the same order; returns the files written."""
        ...

    def read(self, source: Path, records: Sequence[Record], decode: Decode) -> Read:
        """Reads a file, or what the benchmark keeps in a folder.

        Raises:
            DataError: Nothing there to read, a broken entry, or entries that do not answer each record exactly once.
        """
        ...


def exchange(data: Path) -> Exchange:
    """The official form of a dataset's benchmark.

    Raises:
        DataError: It has none.
    """
    benchmark = load_info(data).benchmark
    if benchmark not in EXCHANGES:
        raise DataError(
            f"benchmark {benchmark!r} has no official submission form here",
            where=str(data),
            fix=f"benchmarks that have one: {', '.join(EXCHANGES)}; `python -m eval` scores the folder as it is",
        )
    return cast("Exchange", import_module(EXCHANGES[benchmark]))


def export_predictions(folder: Path, data: Path, out: Path) -> tuple[int, list[Path]]:
    """Writes a finished prediction folder in the form that the official scorer reads.

    Args:
        folder: Finished prediction folder.
        data: The dataset it was made from.
        out: Where to write: a file or a folder, as the benchmark has it.

    Returns:
        Number of predictions, and the files written.

    Raises:
        DataError: The dataset is another one or has no official form, or rows are missing.
    """
    manifest = read_manifest(folder)
    if load_info(data).content_hash != manifest.dataset_hash:
        raise DataError(
            "the dataset is not the one these predictions were made from", where=str(data), fix="give its --data"
        )
    form = exchange(data)
    records = list(read_records(data, manifest.split))[: manifest.limit]
    rows = {row.id: row for row in read_predictions(folder)}
    missing = [record.id for record in records if record.id not in rows]
    if missing:
        raise DataError(f"{len(missing)} rows are missing, first {missing[0]}", where=str(folder), fix="predict again")
    return len(records), form.write(records, [rows[record.id] for record in records], manifest, out)


def import_predictions(
    source: Path, data: Path, split: str, out: Path, *, name: str, codec: str | None = None
) -> Imported:
    """Makes a prediction folder from official files made by anyone.

    Args:
        source: File or folder, as the benchmark has it.
        data: The dataset that was answered.
        split: Its split.
        out: Prediction folder to write.
        name: Name in tables.
        codec: How the texts are read; by default as the benchmark's own form.

    Raises:
        DataError: A broken entry, a repeated, missing or unknown id, a benchmark without an official form, or a folder
            that is not empty.
        UserError: An unknown codec.
    """
    if out.exists() and any(out.iterdir()):
        raise DataError(f"{out} is not empty", fix="give another --out")
    form = exchange(data)
    codec = codec or form.CODEC
    found = form.read(source, list(read_records(data, split)), get_codec(codec).decode)
    out.mkdir(parents=True, exist_ok=True)
    write_atomic(out / PREDICTIONS, b"".join(encode_prediction(row) + b"\n" for row in found.rows))
    manifest = Manifest(
        name=name,
        dataset=str(data),
        dataset_hash=load_info(data).content_hash,
        split=split,
        records=len(found.rows),
        engine="import",
        codec=codec,
        weights=found.weights,
        environment=found.environment,
    )
    write_atomic(out / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1))
    return Imported(folder=out, notes=found.notes)
