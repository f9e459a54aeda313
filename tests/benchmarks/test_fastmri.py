from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from benchmarks.errors import DataError
from benchmarks.fastmri import find_volumes, read_reconstruction, sequence_of, slice_name, split_of, to_greys, upright
from tests.benchmarks.mri_files import write_h5

volumes = arrays(np.float32, array_shapes(min_dims=3, max_dims=3, max_side=4), elements=st.floats(-1e6, 1e6, width=32))


def grey(*values):
    return to_greys(np.array([[values]], np.float32))[0][0].tolist()


def test_values_are_cut_down_never_rounded_and_negatives_are_black():
    assert grey(-3, 0, 0.99, 1, 254.99, 255) == [0, 0, 0, 1, 254, 255]


def test_each_slice_has_its_own_maximum_and_the_minimum_is_not_subtracted():
    values = np.array([[[1, 2]], [[10, 40]]], np.float32)
    assert [each.tolist() for each in to_greys(values)] == [[[127, 255]], [[63, 255]]]


def test_a_slice_without_positive_values_is_black():
    assert grey(-1, 0, -5) == [0, 0, 0]


def test_the_arithmetic_is_that_of_the_file():
    # In float64 the second value is 249.99999672 and would become 249.
    assert grey(0.9998472929000854, 0.9802424311637878) == [255, 250]


def test_rows_are_reversed_and_nothing_else(tmp_path):
    values = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    turned = upright(read_reconstruction(write_h5(tmp_path / "a.h5", values), where=""))
    for slice_, row, column in np.ndindex(2, 3, 4):
        assert turned[slice_, row, column] == values[slice_, 2 - row, column]


@settings(deadline=None)
@given(volumes, st.integers(-8, 8))
def test_greys_do_not_depend_on_the_scale_and_keep_the_order_of_values(values, power):
    greys = to_greys(values)
    assert all(np.array_equal(a, b) for a, b in zip(greys, to_greys(values * np.float32(2.0**power)), strict=True))
    for one, grey_ in zip(values, greys, strict=True):
        assert grey_.max() == (255 if one.max() > 0 else 0)
        order = np.argsort(one, axis=None)
        assert np.all(np.diff(grey_.ravel()[order].astype(int)) >= 0)


def damaged(path):
    write_h5(path, np.ones((4, 64, 64), np.float32))
    path.write_bytes(path.read_bytes()[:-5000])


def with_value(value):
    values = np.ones((2, 3, 3), np.float32)
    values[1, 2, 0] = value
    return values


REFUSED = {
    "truncated": (damaged, "the file is truncated"),
    "empty": (lambda path: path.write_bytes(b""), "not an HDF5 file"),
    "text": (lambda path: path.write_text("x" * 4000), "not an HDF5 file"),
    "test file": (
        lambda path: write_h5(path, np.ones((2, 3, 3), np.complex64), "kspace"),
        "no dataset 'reconstruction_rss', the file holds ismrmrd_header, kspace",
    ),
    "rank": (lambda path: write_h5(path, np.ones((3, 3), np.float32)), r"shape \(3, 3\), expected"),
    "no slices": (lambda path: write_h5(path, np.ones((0, 3, 3), np.float32)), "it is empty"),
    "complex": (lambda path: write_h5(path, np.ones((1, 3, 3), np.complex64)), "holds complex64"),
    "text values": (lambda path: write_h5(path, [[[b"a"]]]), "expected real numbers"),
    "NaN": (lambda path: write_h5(path, with_value(np.nan)), "not finite numbers"),
    "infinite": (lambda path: write_h5(path, with_value(np.inf)), "not finite numbers"),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_unusable_files_say_what_is_wrong_and_what_to_do(tmp_path, make, message):
    path = tmp_path / "a.h5"
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        read_reconstruction(path, where="here")
    assert caught.value.where == "here"
    assert caught.value.fix


@settings(max_examples=80, deadline=None)
@given(
    cut=st.floats(0.1, 1), edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6)
)
def test_damaged_files_give_values_or_a_data_error(tmp_path_factory, cut, edits):
    path = write_h5(tmp_path_factory.getbasetemp() / "damaged-hdf5/a.h5", np.ones((2, 5, 6), np.float32))
    data = bytearray(path.read_bytes())
    data = data[: int(len(data) * cut)]
    for place, value in edits:
        data[int(len(data) * place)] = value
    path.write_bytes(data)
    try:
        values = read_reconstruction(path, where="")
    except DataError:
        return
    assert values.ndim == 3
    assert np.isfinite(values).all()


@pytest.mark.parametrize(
    ("folder", "split"),
    [
        ("brain_multicoil_train_batch_0/multicoil_train", "train"),
        ("knee_multicoil_val/multicoil_val", "val"),
        ("knee_multicoil_test", "test"),
        ("VAL", "val"),
        ("train/b", "train"),
        ("train/multicoil_val", "val"),
        ("interval/trainer", None),
        ("train_val", None),
    ],
)
def test_the_nearest_folder_that_names_a_split_decides(folder, split):
    assert split_of(Path("top") / folder / "a.h5", Path("top")) == split


def test_folders_above_the_one_given_name_no_split():
    assert split_of(Path("train/top/b/a.h5"), Path("train/top")) is None
    assert split_of(Path("train/a.h5"), Path("train")) == "train"


def test_a_folder_given_as_a_dot_has_its_name(tmp_path, monkeypatch):
    write_h5(tmp_path / "multicoil_val/a.h5", np.ones((1, 2, 2), np.float32))
    monkeypatch.chdir(tmp_path / "multicoil_val")
    [path] = find_volumes(Path())
    assert split_of(path, Path()) == "val"


@pytest.mark.parametrize(
    ("name", "sequence"),
    [
        ("file_brain_AXFLAIR_200_6002425", "FLAIR"),
        ("file_brain_AXT1_202_2020089", "T1"),
        ("file_brain_AXT1POST_200_6002196", "T1"),
        ("file_brain_AXT1PRE_200_6002196", "T1"),
        ("file_brain_AXT2_200_2000290", None),
        ("file1000001", None),
    ],
)
def test_sequences_by_name(name, sequence):
    assert sequence_of(name) == sequence


def test_volumes_are_found_in_any_depth_through_links_and_once(tmp_path):
    real = write_h5(tmp_path / "elsewhere/multicoil_train/a.h5", np.ones((1, 2, 2), np.float32))
    top = tmp_path / "top"
    top.mkdir()
    (top / "link").symlink_to(tmp_path / "elsewhere")
    (top / "loop").symlink_to(top)
    (top / "notes.txt").write_text("x")
    assert find_volumes(top) == [top / "link/multicoil_train/a.h5"]
    assert find_volumes(top)[0].samefile(real)


def test_slices_are_counted_from_1_with_three_digits():
    assert slice_name("file1", 7) == "file1_slice_007.png"
