"""What a reader hands to preparation.

A reader turns rows of a release into records. It never stops at the first bad row: a fault is a value
in the stream, so that preparation can list all of them. What concerns the release as a whole (a
missing file, a wrong checksum, unknown columns) is raised when it is opened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.errors import DataError
from benchmarks.images import image_size, resolve
from benchmarks.schema import Record, check_relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Dropped:
    """Something of the release that is left out on purpose, by a stated rule.

    Attributes:
        kind: What it is: `record`, `box`, `volume`.
        reason: The rule, the same words for all that fall to it.
        where: File and row or volume.
    """

    kind: str
    reason: str
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """An opened release.

    Attributes:
        items: Records, faults and what is left out, in the order of the release's rows; read once.
        image_root: Folder that the records' image paths are relative to.
        sources: File read (relative to the release) -> SHA-256.
        reader: Reader and version, `scintiground@1`.
    """

    items: Iterator[Record | DataError | Dropped]
    image_root: Path
    sources: dict[str, str]
    reader: str


def name_share(group: str) -> float:
    """A number in [0, 1) that depends on a group's name alone, evenly spread over names."""
    return int.from_bytes(hashlib.sha256(f"split:{group}".encode()).digest()[:8], "big") / 2**64


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


class ImageSizes:
    """Sizes of image files below a root, each read once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._known: dict[str, tuple[int, int] | DataError] = {}

    def get(self, relative: str) -> tuple[int, int]:
        """Width and height in pixels.

        Raises:
            ValueError: The path is not a relative path under the root.
            DataError: The file is missing, broken, or lies outside the root.
        """
        if relative not in self._known:
            check_relative(relative)
            try:
                self._known[relative] = image_size(resolve(self._root, relative))
            except DataError as error:
                self._known[relative] = error
        known = self._known[relative]
        if isinstance(known, DataError):
            raise known
        return known
