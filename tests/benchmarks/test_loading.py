import pickle
import shutil
import subprocess
import sys

import msgspec
import pytest

from benchmarks.dataset import load_info, read_records, records_path, write_dataset
from benchmarks.errors import DataError
from benchmarks.loading import RecordDataset, check_disjoint, load_split
from benchmarks.schema import Answer, Image, Record, Source


def record(number, split="train", group=None, question="What?"):
    return Record(
        id=f"r{number}",
        benchmark="generic",
        split=split,
        task="vqa",
        group=group or f"g{number}",
        images=(Image(path="a.png", width=4, height=4),),
        question=question,
        target=Answer(text="x"),
        source=Source(id=f"r{number}", file="f", row=number),
    )


def write(folder, records):
    write_dataset(folder, records, name="d", benchmark="generic", reader="r@1", image_root=folder, sources={})
    return folder


@pytest.fixture
def folder(tmp_path):
    # U+2028 and U+0085 end a line for str.splitlines, but not in a JSONL file.
    odd = [record(1000, question="line\u2028one\u0085two — ü"), record(1001, "val")]
    return write(tmp_path / "data", [*(record(n) for n in range(50)), *odd])


def test_rows_are_the_records_in_file_order(folder):
    dataset = RecordDataset(load_split(folder, "train"))
    assert len(dataset) == 51
    assert [dataset[i] for i in range(len(dataset))] == list(read_records(folder, "train"))


def test_rows_are_memory_mapped_and_cached_once(folder):
    first = load_split(folder, "train")
    [cached] = (folder / ".cache").iterdir()
    assert [file["filename"] for file in first.cache_files] == [str(cached)]
    before = cached.stat().st_mtime_ns
    load_split(folder, "train")
    assert cached.stat().st_mtime_ns == before


def test_dataset_pickles_as_a_path(folder):
    dataset = RecordDataset(load_split(folder, "train"))
    data = pickle.dumps(dataset)
    assert len(data) < 5000
    assert pickle.loads(data)[50] == dataset[50]


def test_prepared_again_means_another_cache(folder):
    load_split(folder, "train")
    write(folder, [record(7)])
    assert [r.id for r in map(RecordDataset(load_split(folder, "train")).__getitem__, range(1))] == ["r7"]


def test_changed_record_file_is_refused(folder):
    with records_path(folder, "train").open("a") as stream:
        stream.write("\n")
    with pytest.raises(DataError, match="not the one that was prepared"):
        load_split(folder, "train")


def test_missing_split_is_named(folder):
    with pytest.raises(DataError, match="has no split 'test'; it has train, val"):
        load_split(folder, "test")


def test_unwritable_cache_is_an_error_with_a_fix(folder):
    (folder / ".cache").write_text("in the way")
    with pytest.raises(DataError, match="training cache cannot be written"):
        load_split(folder, "train")


def test_group_in_two_splits_is_refused_again(tmp_path, folder):
    check_disjoint(folder, "train", "val")
    # write_dataset refuses such data: take one split from each of two datasets.
    mixed = write(tmp_path / "mixed", [record(1, group="p23"), record(2, "val", group="p5")])
    other = write(tmp_path / "other", [record(3, "val", group="p23")])
    shutil.copy(records_path(other, "val"), records_path(mixed, "val"))
    files = {**load_info(mixed).files, **load_info(other).files}
    changed = msgspec.structs.replace(load_info(mixed), files=files)
    (mixed / "dataset.json").write_bytes(msgspec.json.encode(changed))
    with pytest.raises(DataError, match="1 groups are in train and in val: p23"):
        check_disjoint(mixed, "train", "val")


@pytest.mark.parametrize("module", ["benchmarks.__main__", "benchmarks.loading", "benchmarks.readers.scintiground"])
def test_import_leaves_heavy_packages_out(module):
    heavy = ("torch", "transformers", "datasets", "pydicom", "scipy")
    code = f"import {module}, sys; sys.exit(any(name in sys.modules for name in {heavy}))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
