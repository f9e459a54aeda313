"""What a reader hands to preparation.

A reader turns rows of a release into records. It never stops at the first bad row: a fault is a value
in the stream, so that preparation can list all of them. What concerns the release as a whole (a
missing file, a wrong checksum, unknown columns) is raised when it is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import DataError
from benchmarks.schema import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An opened release.

    Attributes:
        items: Records and faults in the order of the release's rows; read once.
        image_root: Folder that the records' image paths are relative to.
        sources: File read (relative to the release) -> SHA-256.
        reader: Reader and version, `scintiground@1`.
    """

    items: Iterator[Record | DataError]
    image_root: Path
    sources: dict[str, str]
    reader: str


class RowFaults:
    """Collects everything that is wrong with one row.

    Args:
        where: File and row, with the record's id if it is known.
        fix: What to do about a fault, unless `add` says otherwise.
    """

    def __init__(self, where: str, fix: str) -> None:
        self._where = where
        self._fix = fix
        self.found: list[DataError] = []

    def add(self, field: str, message: str, fix: str = "") -> None:
        """Notes a fault of one field."""
        self.found.append(DataError(message, where=f"{self._where}, field {field}", fix=fix or self._fix))

    def require(self, **fields: str) -> None:
        """Notes every field that is empty or blank."""
        for field, value in fields.items():
            if not value.strip():
                self.add(field, f"{field} is empty")
