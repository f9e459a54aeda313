"""The stores of vision features: bit for bit, within their bound, and whole whatever happens to the writers."""

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import models.vision_store
from models.vision_store import STALE_SECONDS, DiskStore, MemoryStore
from recipes.errors import UserError
from tests.launching import ROOT

ROOM = 2**30
DTYPES = (torch.bfloat16, torch.float16, torch.float32)
FORK = multiprocessing.get_context("fork")


def nothing(line):
    raise AssertionError(f"nothing was to be said: {line}")


def key_of(number):
    return f"{number * 2654435761 % 2**32:08x}" * 8


def made(number, dtype=torch.bfloat16, tokens=40, width=16):
    """Features of a set, the same every time."""
    generator = torch.Generator().manual_seed(number)
    features = torch.randn(tokens, width, generator=generator).to(dtype)
    return {"features": features, "deepstack": torch.randn(3, tokens, width, generator=generator).to(dtype)}


def same(found, expected):
    """Equal bit for bit, signed zeros and the payloads of NaN included."""
    return found.keys() == expected.keys() and all(
        found[name].dtype == expected[name].dtype
        and found[name].shape == expected[name].shape
        and found[name].contiguous().view(torch.uint8).equal(expected[name].contiguous().view(torch.uint8))
        for name in expected
    )


def files(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def bytes_of(folder):
    return sum(path.stat().st_size for path in files(folder))


@pytest.fixture(params=["memory", "disk"])
def make_store(request, tmp_path):
    """Makes a store with a bound and something that hears what it says."""

    def make(limit=ROOM, say=nothing):
        return MemoryStore(limit, say) if request.param == "memory" else DiskStore(tmp_path / "cache", limit, say)

    return make


@settings(deadline=None, max_examples=60)
@given(
    tokens=st.integers(0, 9),
    width=st.integers(1, 9),
    levels=st.none() | st.integers(0, 3),
    dtype=st.sampled_from(DTYPES),
    turned=st.booleans(),
    seed=st.integers(0, 2**32),
)
def test_features_come_back_bit_for_bit(tokens, width, levels, dtype, turned, seed):
    bits = torch.int16 if dtype.itemsize == 2 else torch.int32
    limits = torch.iinfo(bits)
    generator = torch.Generator().manual_seed(seed)

    def any_bits(*shape):
        values = torch.randint(limits.min, limits.max, shape, generator=generator, dtype=bits).view(dtype)
        return values.transpose(-1, -2).contiguous().transpose(-1, -2) if turned else values

    features = {"features": any_bits(tokens, width)}
    if levels is not None:
        features["deepstack"] = any_bits(levels, tokens, width)
    with tempfile.TemporaryDirectory() as folder:
        for store in (MemoryStore(ROOM, nothing), DiskStore(Path(folder), ROOM, nothing)):
            assert store.get(key_of(1)) is None
            assert store.put(key_of(1), features)
            assert same(store.get(key_of(1)), features)
            assert (store.counts.hits, store.counts.misses) == (1, 1)
        assert same(DiskStore(Path(folder), ROOM, nothing).get(key_of(1)), features)


def test_what_is_kept_does_not_follow_the_tensors_it_came_from(make_store):
    store, features = make_store(), made(1)
    store.put(key_of(1), features)
    features["features"].zero_()
    assert same(store.get(key_of(1)), made(1))


def test_parts_of_one_tensor_are_kept_each_by_itself(make_store):
    whole = torch.randn(8, 4)
    store = make_store()
    assert store.put(key_of(1), {"features": whole[:6], "deepstack": whole[None, 2:]})
    assert same(store.get(key_of(1)), {"features": whole[:6], "deepstack": whole[None, 2:]})
    assert store.counts.bytes < 2 * 6 * 4 * 4 + 1000


def test_gradients_do_not_get_into_a_store(make_store):
    store = make_store()
    store.put(key_of(1), {"features": torch.ones(2, 2, requires_grad=True) * 2})
    assert not store.get(key_of(1))["features"].requires_grad


def test_the_first_features_of_a_key_stay(make_store):
    store = make_store()
    assert store.put(key_of(1), made(1))
    assert store.put(key_of(1), made(2))
    assert same(store.get(key_of(1)), made(1))


# --- the bound


def test_a_full_store_keeps_what_it_has_says_so_once_and_takes_no_more(make_store, tmp_path):
    said = []
    probe = make_store()
    probe.put(key_of(0), made(0))
    each = probe.counts.bytes
    shutil.rmtree(tmp_path / "cache", ignore_errors=True)
    store = make_store(3 * each + each // 2, said.append)
    kept = [store.put(key_of(number), made(number)) for number in range(6)]
    assert kept == [True] * 3 + [False] * 3
    assert store.counts.bytes == 3 * each
    assert len(said) == 1
    assert "3 image sets" in said[0]
    assert "vision_cache_gib" in said[0]
    for number in range(6):  # the next epoch
        found = store.get(key_of(number))
        assert same(found, made(number)) if number < 3 else found is None
    assert len(said) == 1


def test_the_bound_counts_what_earlier_runs_and_other_processes_left(tmp_path):
    first = DiskStore(tmp_path, ROOM, nothing)
    for number in range(3):
        first.put(key_of(number), made(number))
    assert first.counts.bytes == bytes_of(tmp_path)
    said = []
    second = DiskStore(tmp_path, first.counts.bytes + 100, said.append)
    assert second.counts.bytes == first.counts.bytes
    assert not second.put(key_of(3), made(3))
    assert "3 image sets" in said[0]
    assert same(second.get(key_of(1)), made(1))
    assert bytes_of(tmp_path) <= first.counts.bytes + 100


@settings(deadline=None, max_examples=30)
@given(limit=st.integers(0, 40_000), sizes=st.lists(st.integers(0, 200), max_size=12))
def test_the_bytes_on_disk_never_pass_the_bound(limit, sizes):
    with tempfile.TemporaryDirectory() as folder:
        store = DiskStore(Path(folder), limit, lambda line: None)
        for number, tokens in enumerate(sizes):
            kept = store.put(key_of(number), made(number, tokens=tokens))
            assert (store.get(key_of(number)) is not None) is kept
            assert store.counts.bytes == bytes_of(Path(folder)) <= limit


# --- files that cannot be used


def damage(path, how, other):
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    if how == "empty":
        path.write_bytes(b"")
    elif how == "cut in the header":
        path.write_bytes(data[:60])
    elif how == "cut in the values":
        path.write_bytes(data[:-1])
    elif how == "one bit":
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    elif how == "another set's":
        shutil.copy(other, path)
    elif how == "no metadata":
        del header["__metadata__"]
        path.write_bytes(with_header(header, data[8 + length :]))
    elif how == "another shape":
        header["features"]["shape"].reverse()
        path.write_bytes(with_header(header, data[8 + length :]))
    elif how == "a type that torch lacks":
        header["features"] |= {"dtype": "F4", "shape": [header["features"]["shape"][0], 64]}
        path.write_bytes(with_header(header, data[8 + length :]))
    elif how == "a folder":
        path.unlink()
        path.mkdir()


def with_header(header, values):
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + values


DAMAGE = [
    "empty",
    "cut in the header",
    "cut in the values",
    "one bit",
    "another set's",
    "no metadata",
    "another shape",
    "a type that torch lacks",
]


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_file_is_not_used_said_once_and_written_anew(how, tmp_path):
    said = []
    first = DiskStore(tmp_path, ROOM, nothing)
    for number in (1, 2):
        first.put(key_of(number), made(number))
    path, other = (first.folder / key[:2] / key[2:4] / f"{key}.safetensors" for key in (key_of(1), key_of(2)))
    damage(path, how, other)
    store = DiskStore(tmp_path, ROOM, said.append)
    assert store.get(key_of(1)) is None
    assert store.get(key_of(1)) is None
    assert len(said) == 1
    assert str(path) in said[0]
    assert "anew" in said[0]
    assert same(store.get(key_of(2)), made(2))
    assert store.put(key_of(1), made(1))
    assert same(store.get(key_of(1)), made(1))
    assert store.counts.bytes == bytes_of(tmp_path)
    assert len(said) == 1
    assert same(DiskStore(tmp_path, ROOM, nothing).get(key_of(1)), made(1))


def test_a_file_that_is_altered_after_it_was_read_is_not_used_either(tmp_path):
    said = []
    store = DiskStore(tmp_path, ROOM, said.append)
    store.put(key_of(1), made(1))
    assert same(store.get(key_of(1)), made(1))
    path = files(tmp_path)[0]
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert store.get(key_of(1)) is None
    assert len(said) == 1


def test_a_damaged_file_of_a_full_store_is_written_anew(tmp_path):
    said = []
    DiskStore(tmp_path, ROOM, nothing).put(key_of(1), made(1))
    path = files(tmp_path)[0]
    limit = path.stat().st_size
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    store = DiskStore(tmp_path, limit, said.append)
    assert not store.put(key_of(2), made(2))
    assert store.get(key_of(1)) is None
    assert store.put(key_of(1), made(1))
    assert same(store.get(key_of(1)), made(1))
    assert bytes_of(tmp_path) == limit


def test_something_that_cannot_be_read_or_replaced_is_said_and_lived_with(tmp_path):
    said = []
    store = DiskStore(tmp_path, ROOM, said.append)
    store.put(key_of(1), made(1))
    damage(files(tmp_path)[0], "a folder", None)
    assert store.get(key_of(1)) is None
    assert not store.put(key_of(1), made(1))
    assert len(said) == 2
    assert not [path for path in files(tmp_path) if path.suffix == ".part"]


# --- several processes, and their end


def started(function, *arguments):
    """A process that is a copy of this one; in a copy torch's threads would wait for ever."""

    def alone():
        torch.set_num_threads(1)
        function(*arguments)

    process = FORK.Process(target=alone)
    process.start()
    return process


def write_all(folder, count, tokens):
    store = DiskStore(folder, ROOM, nothing)
    for number in range(count):
        if store.get(key_of(number)) is None:
            assert store.put(key_of(number), made(number, tokens=tokens))


def check_all(folder, tokens):
    """Every entry that is there is whole; returns how many there are."""
    store = DiskStore(folder, ROOM, nothing)
    entries = [path.stem for path in files(folder) if path.suffix == ".safetensors"]
    numbers = {key_of(number): number for number in range(1000)}
    assert all(same(store.get(key), made(numbers[key], tokens=tokens)) for key in entries)
    return len(entries)


def big(number):
    return {"features": torch.full((4096, 512), float(number))}


def write_big(folder, count):
    store = DiskStore(folder, ROOM, nothing)
    for number in range(count):
        if store.get(key_of(number)) is None:
            store.put(key_of(number), big(number))


def test_a_writer_killed_at_any_moment_leaves_whole_entries_and_the_next_one_goes_on(tmp_path):
    rng, count = random.Random(7), 8
    for moment in range(12):
        before = files(tmp_path)
        writer = started(write_big, tmp_path, count)
        if moment % 2:
            time.sleep(rng.uniform(0.02, 0.2))
        else:  # as soon as it writes a file
            while writer.is_alive() and files(tmp_path) == before:
                pass
        writer.kill()
        writer.join()
        assert writer.exitcode in (0, -signal.SIGKILL)
        store = DiskStore(tmp_path, ROOM, nothing)
        entries = {path.stem for path in files(tmp_path) if path.suffix == ".safetensors"}
        for number in range(count):
            found = store.get(key_of(number))
            assert same(found, big(number)) if key_of(number) in entries else found is None
        if len(entries) == count:  # the kills go on counting
            shutil.rmtree(tmp_path)
    write_big(tmp_path, count)
    store = DiskStore(tmp_path, ROOM, nothing)
    assert all(same(store.get(key_of(number)), big(number)) for number in range(count))


def kill_itself(folder, tokens, moment):
    owner, name = {"before the flush": (os, "fsync"), "before the rename": (Path, "replace")}[moment]
    setattr(owner, name, lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
    write_all(folder, 1, tokens)


@pytest.mark.parametrize("moment", ["before the flush", "before the rename"])
def test_what_a_killed_writer_left_half_done_is_no_entry_and_goes_when_a_day_old(moment, tmp_path):
    writer = started(kill_itself, tmp_path, 100, moment)
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    (part,) = files(tmp_path)
    assert part.name.startswith(".")
    store = DiskStore(tmp_path, ROOM, nothing)
    assert store.counts.bytes == part.stat().st_size  # it takes room, whoever may still be writing it
    assert store.get(key_of(0)) is None
    assert store.put(key_of(0), made(0))
    assert part.exists()
    old = time.time() - STALE_SECONDS - 60
    os.utime(part, (old, old))
    store = DiskStore(tmp_path, ROOM, nothing)
    assert not part.exists()
    assert store.counts.bytes == bytes_of(tmp_path)
    assert same(store.get(key_of(0)), made(0))


def test_processes_that_write_the_same_keys_at_once_leave_whole_entries(tmp_path):
    writers = [started(write_all, tmp_path, 40, 300) for _ in range(3)]
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    assert check_all(tmp_path, 300) == 40
    assert len(files(tmp_path)) == 40


def look(store, key):
    store.get(key)


def test_a_copy_in_a_worker_process_stays_silent(tmp_path):
    heard = tmp_path / "heard"
    heard.write_text("")

    def say(line):
        heard.write_text(heard.read_text() + line)

    store = DiskStore(tmp_path / "cache", ROOM, say)
    store.put(key_of(1), made(1))
    path = files(tmp_path / "cache")[0]
    path.write_bytes(path.read_bytes()[:-1])
    worker = started(look, store, key_of(1))
    worker.join()
    assert worker.exitcode == 0
    assert heard.read_text() == ""
    look(store, key_of(1))
    assert str(path) in heard.read_text()


# --- folders and disks that take nothing


def test_an_error_while_writing_ends_the_keeping_and_not_the_run(tmp_path, monkeypatch):
    said = []
    store = DiskStore(tmp_path, ROOM, said.append)
    store.put(key_of(1), made(1))
    before = store.counts.bytes

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(models.vision_store.os, "fsync", full)
    assert [store.put(key_of(number), made(number)) for number in (2, 3)] == [False, False]
    assert len(said) == 1
    assert os.strerror(errno.ENOSPC) in said[0]
    assert store.counts.bytes == before == bytes_of(tmp_path)
    assert same(store.get(key_of(1)), made(1))


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError) as error:
        DiskStore(tmp_path / "file" / "cache", ROOM, nothing)
    assert "cannot be written" in error.value.message
    assert "vision_cache_dir" in error.value.fix


SMALL_DISK = """
from pathlib import Path
from models.vision_store import DiskStore
from recipes.errors import UserError
from tests.models.test_vision_store import bytes_of, files, key_of, made, same

import subprocess, sys
folder, said = Path(sys.argv[1]), []
store = DiskStore(folder / "cache", 2**30, said.append)
kept = [store.put(key_of(number), made(number, tokens=300)) for number in range(30)]
assert 0 < sum(kept) < 30, kept
assert len(said) == 1 and "No space left" in said[0], said
for number, there in enumerate(kept):
    found = store.get(key_of(number))
    assert same(found, made(number, tokens=300)) if there else found is None
assert len(files(folder)) == sum(kept)
filler = folder / "filler"
with filler.open("wb") as stream:
    try:
        stream.write(bytes(2**20))
        stream.flush()
    except OSError:
        pass
said.clear()
full = DiskStore(folder / "cache", 2**30, said.append)
assert len(said) == 1 and "No space left" in said[0], said
assert same(full.get(key_of(0)), made(0, tokens=300))
assert not full.put(key_of(99), made(99))
subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
try:
    DiskStore(folder / "cache", 2**30, said.append)
except UserError as error:
    print("refused:", error.message)
"""


def test_a_full_disk_is_a_bound_and_a_disk_that_is_read_only_is_refused(tmp_path):
    """On a real file system of 1 MiB, in a mount namespace of its own."""
    mount = f"mount -t tmpfs -o size=1m tmpfs {tmp_path}"
    namespace = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("no file system can be mounted here")
    command = [*namespace, f'{mount} && exec "$0" -c "$1" "$2"', sys.executable, SMALL_DISK, str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "refused: the vision cache cannot be written" in done.stdout
