"""Records for training: memory-mapped rows, so that all processes of a machine share one copy.

The record file of a split is copied once into an Arrow file under the dataset's `.cache`, named by the
record file's hash. Processes that do so at the same time write the same bytes under names of their own
and rename them, so none sees half a file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.dataset import checked_records, load_info, read_records
from benchmarks.errors import DataError
from benchmarks.schema import Record, decode_record

if TYPE_CHECKING:
    import datasets

COLUMN = "json"
_CACHE = ".cache"


def load_split(folder: Path, split: str) -> datasets.Dataset:
    """Opens a split as a memory-mapped `datasets.Dataset`.

    Args:
        folder: Prepared dataset.
        split: `train`, `val` or `test`.

    Returns:
        One string column `json`, a record a row, in file order.

    Raises:
        DataError: No such split, the record file was changed, or the cache cannot be written.
    """
    import datasets

    path = checked_records(folder, split)
    digest = load_info(folder).files[path.name]
    cached = folder / _CACHE / f"{split}-{digest[:16]}.arrow"
    if not cached.is_file():
        try:
            _write_arrow(path, cached)
        except OSError as error:
            raise DataError(
                f"the training cache cannot be written: {error.strerror}",
                where=str(error.filename or cached),
                fix="check space and permissions of the dataset folder",
            ) from error
    return datasets.Dataset.from_file(str(cached))


class RecordDataset:
    """Map-style dataset of records for torch's data loaders.

    Pickles as the path of the memory-mapped file, so that worker processes cost no memory.

    Args:
        rows: What `load_split` returns.
    """

    def __init__(self, rows: datasets.Dataset) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Record:
        """Decodes record `index` (from 0)."""
        return decode_record(self._rows[index][COLUMN], where=f"training row {index}")


def check_disjoint(folder: Path, first: str, second: str) -> None:
    """Checks again, at training, what preparation checked: no group is in both splits.

    Raises:
        DataError: Names up to five groups that are, and their number.
    """
    groups = [{record.group for record in read_records(folder, split)} for split in (first, second)]
    shared = sorted(groups[0] & groups[1])
    if shared:
        raise DataError(
            f"{len(shared)} groups are in {first} and in {second}: {', '.join(shared[:5])}",
            where=str(folder),
            fix="a patient or volume may be in one split only: mend the source and prepare again",
        )


def _write_arrow(path: Path, cached: Path) -> None:
    from datasets import Features, Value
    from datasets.arrow_writer import ArrowWriter

    cached.parent.mkdir(exist_ok=True)
    temporary = cached.with_name(f".{cached.name}.{os.getpid()}.part")
    features = Features({COLUMN: Value("string")})
    try:
        # newline="\n": other line ends of Unicode may stand inside a record.
        with (
            path.open(encoding="utf-8", newline="\n") as lines,
            ArrowWriter(path=str(temporary), features=features) as writer,
        ):
            for line in lines:
                writer.write({COLUMN: line.rstrip("\n")})
            writer.finalize()
        temporary.replace(cached)
    finally:
        temporary.unlink(missing_ok=True)
