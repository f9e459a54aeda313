"""`SHA256SUMS.txt` of a release: `<sha256><two blanks><name>`, one file a line."""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks.dataset import sha256_file
from benchmarks.errors import DataError

CHECKSUMS = "SHA256SUMS.txt"
_LINE = re.compile(r"([0-9a-fA-F]{64})  (?:\./)?(\S.*)")


def hash_sources(folder: Path, names: list[str]) -> dict[str, str]:
    """Hashes the files of a release that are about to be read.

    Files without a line in `SHA256SUMS.txt` (export rows, for instance) are hashed but not compared.

    Args:
        folder: The release.
        names: File names relative to it.

    Returns:
        File name -> SHA-256.

    Raises:
        DataError: A file's hash differs from the listed one, or the list has a line that is not a checksum.
    """
    listed = _listed(folder / CHECKSUMS)
    hashes = {name: sha256_file(folder / name) for name in names}
    for name, found in hashes.items():
        if listed.get(name, found) != found:
            raise DataError(
                f"SHA-256 of {name} is {found}, {CHECKSUMS} says {listed[name]}",
                where=str(folder / name),
                fix="the file was changed or damaged: get the release again",
            )
    return hashes


def _listed(path: Path) -> dict[str, str]:
    if not path.is_file():
        return {}
    listed = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1):
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise DataError(
                f"not a checksum line: {line[:80]!r}",
                where=f"{path} row {number}",
                fix="expected 64 hexadecimal digits, two blanks and a file name; get the release again",
            )
        listed[match[2]] = match[1].lower()
    return listed
