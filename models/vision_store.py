"""Vision features that are kept: in memory, or on disk for other epochs, processes and runs.

An entry is one image set: `features` float[N, D], N image tokens of width D, and for Qwen3-VL `deepstack`
float[levels, N, D]; any type, returned bit for bit. Keys come from `models.vision_key`.

A store that has reached its bound keeps what it has and takes nothing more. It does not make room by dropping what was
used longest ago: training reads every set once an epoch, so that the oldest entry is the one that is needed next, and
a cache that is a little too small would drop every entry just before its use. As it is, a store with room for half of
the sets spares half of the work.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import safetensors.torch
import torch
from safetensors import SafetensorError

from collators.image_sets import Features
from models.vision_key import tensors_hash
from recipes.errors import UserError

Say = Callable[[str], None]

SUFFIX = ".safetensors"
PART = ".part"
# Writing an entry takes seconds: a part that is older was left by a process that was killed.
STALE_SECONDS = 24 * 3600.0
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(slots=True)
class Counts:
    """What a store did in this process.

    Attributes:
        hits: Sets that were there.
        misses: Sets that were not.
        bytes: Bytes kept now.
    """

    hits: int = 0
    misses: int = 0
    bytes: int = 0


class FeatureStore(Protocol):
    """Keeps features by key.

    Attributes:
        counts: What it did so far.
    """

    counts: Counts

    def get(self, key: str) -> Features | None:
        """The features kept under a key, not to be changed in place; `None` if there are none."""
        ...

    def put(self, key: str, features: Features) -> bool:
        """Keeps features; `False` if there is no room for them."""
        ...


class MemoryStore:
    """Keeps features in the memory of this process, on the device they come on.

    Args:
        limit_bytes: Bound on their bytes.
        say: Takes a line for the user when the bound is reached.
    """

    def __init__(self, limit_bytes: int, say: Say) -> None:
        self.counts = Counts()
        self._limit = limit_bytes
        self._say = say
        self._kept: dict[str, Features] = {}
        self._full = False

    def get(self, key: str) -> Features | None:
        """See `FeatureStore.get`."""
        found = self._kept.get(key)
        _count(self.counts, found)
        return found

    def put(self, key: str, features: Features) -> bool:
        """See `FeatureStore.put`; features that are there already stay as they are."""
        if key in self._kept:
            return True
        # Copies: a view would keep the whole of what it was cut from.
        size = _size(features)
        if self.counts.bytes + size > self._limit:
            if not self._full:
                self._say(_bound("memory", len(self._kept), self._limit))
            self._full = True
            return False
        # What prediction computes could else not be trained on.
        with torch.inference_mode(mode=False):
            self._kept[key] = {name: tensor.detach().clone() for name, tensor in features.items()}
        self.counts.bytes += size
        return True


class DiskStore:
    """Keeps features in a folder, one safetensors file per image set, for any number of processes at once.

    A file is written under a hidden name, flushed to the disk and renamed, so that a process killed at any moment leaves
    whole files, and at most a hidden part that is ignored, and removed when a day old. Its header holds the key and a
    checksum, which is verified when the process first reads the file: one that is truncated, altered or another set's is
    reported once, computed anew and overwritten.

    Copies of a store in worker processes read and stay silent: the process that opened it looks again before it computes.

    Args:
        folder: The folder; made if it does not exist.
        limit_bytes: Bound on the bytes of all files, those of earlier runs and of other processes included as they are
            when the store is opened. What others write afterwards is not seen: together they may pass the bound by that.
        say: Takes lines for the user: a damaged file, and once that nothing more is kept.

    Raises:
        UserError: The folder cannot be written.
    """

    def __init__(self, folder: Path, limit_bytes: int, say: Say) -> None:
        self.counts = Counts()
        self.folder = folder
        self.limit = limit_bytes
        self._say = say
        self._owner = os.getpid()
        # Keys whose file was found whole, with what tells that it is still the same file.
        self._verified: dict[str, tuple[int, int, int]] = {}
        self._damaged: set[str] = set()
        self._closed = False
        self._claim()
        self._files, self.counts.bytes = self._scan()

    def get(self, key: str) -> Features | None:
        """See `FeatureStore.get`; also `None` for a file that cannot be used."""
        found = self._read(key)
        _count(self.counts, found)
        return found

    def put(self, key: str, features: Features) -> bool:
        """See `FeatureStore.put`; a file that is there already stays, unless it was found damaged."""
        path = self._path(key)
        if path.exists() and key not in self._damaged:
            return True
        if (self._closed and key not in self._damaged) or not self._has_room(path, _size(features)):
            return False
        tensors = {
            name: tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, tensor in sorted(features.items())
        }
        data = safetensors.torch.save(tensors, {"key": key, "sha256": tensors_hash(tensors.items())})
        if not self._has_room(path, len(data)):
            return False
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._replace(path, data)
        except OSError as error:
            self._close(f"the vision cache {self.folder} takes nothing more: {error}")
            return False
        self._damaged.discard(key)
        return True

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:4] / f"{key}{SUFFIX}"

    def _read(self, key: str) -> Features | None:
        path = self._path(key)
        try:
            with path.open("rb") as stream:
                stat = os.fstat(stream.fileno())
                data = stream.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            self._refuse(key, f"cannot be read ({error})")
            return None
        same = (stat.st_ino, stat.st_size, stat.st_mtime_ns)
        try:
            tensors = safetensors.torch.load(data)
            if self._verified.get(key) != same:
                _verify(key, data, tensors)
        except (SafetensorError, ValueError, KeyError) as error:  # KeyError: a type of number that torch lacks
            self._refuse(key, f"is damaged ({error})")
            return None
        self._verified[key] = same
        return tensors

    def _refuse(self, key: str, why: str) -> None:
        """Notes a file that cannot be used, and says so the first time."""
        if key not in self._damaged:
            self._damaged.add(key)
            self._tell(
                f"WARNING: vision cache file {self._path(key)} {why}: what it held is computed anew and written over it; "
                "if this goes on, check the disk, and remove the folder"
            )

    def _has_room(self, path: Path, size: int) -> bool:
        old = path.stat().st_size if path.exists() else 0
        fits = self.counts.bytes - old + size <= self.limit
        if not fits:
            self._close(_bound(str(self.folder), self._files, self.limit))
        return fits

    def _replace(self, path: Path, data: bytes) -> None:
        """Writes a file at once or not at all."""
        # Process numbers are no name: two containers that share a folder often have the same.
        part = path.with_name(f".{path.stem[:16]}.{secrets.token_hex(8)}{PART}")
        try:
            with part.open("xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
            old = path.stat().st_size if path.exists() else 0
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        self.counts.bytes += len(data) - old
        self._files += old == 0

    def _close(self, line: str) -> None:
        """Takes no further sets from now on, and says why."""
        if not self._closed:
            self._closed = True
            self._tell(line)

    def _tell(self, line: str) -> None:
        if os.getpid() == self._owner:
            self._say(line)

    def _claim(self) -> None:
        """Makes the folder and tries to write into it."""
        probe = self.folder / f".probe.{secrets.token_hex(8)}{PART}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                probe.write_bytes(b"\0")
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            if error.errno in _NO_ROOM and self.folder.is_dir():
                self._close(f"the vision cache {self.folder} takes nothing more: {error}")
                return
            raise UserError(
                f"the vision cache cannot be written: {error}",
                where=str(self.folder),
                fix="set vision_cache_dir to a folder that may be written, or vision_cache: off (or memory, if the tower is not trained)",
            ) from error

    def _scan(self) -> tuple[int, int]:
        """Number of entries and bytes of all files; removes what killed processes left."""
        files, size = 0, 0
        now = time.time()
        for path in (*self.folder.glob(f".*{PART}"), *self.folder.glob("*/*/*")):
            try:
                stat = path.stat()
                if path.suffix == PART and now - stat.st_mtime > STALE_SECONDS:
                    path.unlink()
                    continue
            except FileNotFoundError:
                # Another process has renamed or removed it meanwhile.
                continue
            files += path.suffix == SUFFIX
            size += stat.st_size
        return files, size


def _verify(key: str, data: bytes, tensors: Features) -> None:
    """Checks the content of a file against its header; raises `ValueError`."""
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get("__metadata__") or {}
    if metadata.get("key") != key:
        raise ValueError("it holds another image set")
    if metadata.get("sha256") != tensors_hash(sorted(tensors.items())):
        raise ValueError("its checksum does not agree with its content")


def _size(features: Features) -> int:
    return sum(tensor.nbytes for tensor in features.values())


def _count(counts: Counts, found: Features | None) -> None:
    counts.hits += found is not None
    counts.misses += found is None


def _bound(where: str, files: int, limit: int) -> str:
    return (
        f"vision cache ({where}): beside {files:,} image sets there is no room for the next one in its {limit / 2**30:.3g} GiB; "
        "it keeps what it has, all others are computed every time (raise vision_cache_gib to keep them)"
    )
