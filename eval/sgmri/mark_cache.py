"""What judges and BERTScore have said, kept in `marks.jsonl` of the prediction folder: one JSON object a line.

An entry is found by a hash of all that it depends on (model, address, texts), so predictions may change beside it. Each
is written and flushed to disk at once; a line that a killed process left unfinished is cut off before the next is
written. One process writes a folder at a time. No key is ever in it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from benchmarks.errors import DataError
from benchmarks.locking import locked

MARKS = "marks.jsonl"


class Mark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One entry.

    Attributes:
        key: From `mark_key`.
        by: Who said it: model and address, for people who read the file.
        reply: A judge's reply, untouched.
        value: A BERTScore F1.
        prompt_tokens: What the reply cost, as the endpoint counts; `None` if it does not say.
        completion_tokens: The same of the reply itself.
    """

    key: str
    by: str
    reply: str | None = None
    value: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


def mark_key(parts: Sequence[object]) -> str:
    """SHA-256 over all that an entry depends on."""
    return hashlib.sha256(msgspec.json.encode(list(parts), order="deterministic")).hexdigest()


class MarkCache:
    """Entries of several folders, and the one file that new ones go to."""

    def __init__(self, known: dict[str, Mark], path: Path) -> None:
        self._known = known
        self._path = path

    def get(self, key: str) -> Mark | None:
        """The entry, whichever folder it is from."""
        return self._known.get(key)

    def add(self, mark: Mark) -> None:
        """Keeps an entry: it is on disk when this returns."""
        with self._path.open("ab") as stream:
            stream.write(msgspec.json.encode(mark) + b"\n")
            stream.flush()
            os.fsync(stream.fileno())
        self._known[mark.key] = mark


def read_marks(folder: Path) -> dict[str, Mark]:
    """The entries of a folder without one that is not finished; empty if it has none.

    Raises:
        DataError: A line is not an entry.
    """
    path = folder / MARKS
    if not path.is_file():
        return {}
    decoder = msgspec.json.Decoder(Mark)
    found = {}
    for number, line in enumerate(_finished(path.read_bytes()).splitlines(), start=1):
        try:
            mark = decoder.decode(line)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise DataError(
                f"not a mark: {error}", where=f"{path} row {number}", fix="delete the line, or the file to ask again"
            ) from error
        found[mark.key] = mark
    return found


@contextmanager
def open_cache(folder: Path, known: dict[str, Mark]) -> Iterator[MarkCache]:
    """Opens a folder's file for writing.

    Args:
        folder: Prediction folder.
        known: Entries of other folders, which are found as well; gets this folder's and the new ones.

    Raises:
        DataError: Another process writes the folder, it cannot be written, or a line of the file is not an entry.
    """
    path = folder / MARKS
    if not os.access(folder, os.W_OK):
        raise DataError(
            f"the folder {folder} cannot be written, and marks are kept in it",
            where=str(path),
            fix="score a copy of it, or leave --judge and --bertscore out",
        )
    with locked(folder, needed=True, fix="wait for it or stop it: marks are kept in this folder"):
        if path.is_file():
            content = path.read_bytes()
            os.truncate(path, len(_finished(content)))
        known.update(read_marks(folder))
        yield MarkCache(known, path)


def _finished(content: bytes) -> bytes:
    """The content up to its last line break."""
    return content[: content.rfind(b"\n") + 1]
