import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.dicom_series import read_series
from benchmarks.errors import DataError
from benchmarks.volumes_rows import convert_volume
from recipes.errors import run_command
from tests.benchmarks.dicom_files import (
    INSTITUTION,
    NAME,
    PATIENT_ID,
    UID,
    pydicom,
    write_dicom,
    write_enhanced,
    write_slice,
)

SLICES = np.random.default_rng(0).integers(0, 900, (12, 5, 4)).astype(np.uint16)


def write_series(folder, names, slices=SLICES, gap=3.0, **tags):
    """One file per slice, `names` in order of position."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        write_slice(folder / name, pixels, (0, 0, gap * number), **tags)
        for number, (name, pixels) in enumerate(zip(names, slices, strict=True))
    ]


def read(paths):
    return read_series([(path, f"file {number}") for number, path in enumerate(paths, start=1)])


def greys(paths, out, **options):
    converted = convert_volume(paths, out, pseudonym="P1", **options)
    return [np.asarray(Image.open(path)) for path in converted.images]


def shuffled(seed):
    names = [f"{number:02d}.dcm" for number in range(12)]
    random.Random(seed).shuffle(names)
    return names


def test_slices_are_ordered_by_position_whatever_the_names_and_numbers(tmp_path):
    for seed in range(5):
        paths = write_series(tmp_path / str(seed), shuffled(seed))
        assert np.array_equal(read(sorted(paths)).values, SLICES)
        assert np.array_equal(read(random.Random(seed).sample(paths, 12)).values, SLICES)


def test_a_folder_and_its_files_give_the_same_bytes(tmp_path):
    paths = write_series(tmp_path / "series", shuffled(1))
    (tmp_path / "series/DICOMDIR").write_bytes(b"an index, not a picture")
    (tmp_path / "series/.hidden").write_bytes(b"x")
    for name, given_ in (("folder", [tmp_path / "series"]), ("files", paths[::-1])):
        convert_volume(given_, tmp_path / name, pseudonym="P1")
    files = [sorted(path.name for path in (tmp_path / name).iterdir()) for name in ("folder", "files")]
    assert (
        files[0]
        == files[1]
        == sorted([*(f"P1_slice_{n:03d}.png" for n in range(1, 13)), "P1_volume.json", "rows.jsonl"])
    )
    assert all((tmp_path / "folder" / n).read_bytes() == (tmp_path / "files" / n).read_bytes() for n in files[0])


@pytest.mark.parametrize(
    ("facing", "normal"),
    [
        ((1, 0, 0, 0, 1, 0), (0, 0, 1)),
        ((1, 0, 0, 0, 0, -1), (0, 1, 0)),
        ((0, 1, 0, 0, 0, -1), (-1, 0, 0)),
        ((1, 0, 0, 0, -1, 0), (0, 0, -1)),
        ((0.8, 0.6, 0, 0, 0, -1), (-0.6, 0.8, 0)),
    ],
    ids=["axial", "coronal", "sagittal", "upside down", "oblique"],
)
def test_order_is_along_the_normal_of_any_plane(tmp_path, facing, normal):
    places = [np.array([7, -30, 90]) + 2.5 * number * np.array(normal) for number in range(12)]
    paths = [
        write_slice(tmp_path / name, pixels, place.tolist(), facing=facing)
        for name, pixels, place in zip(shuffled(3), SLICES, places, strict=True)
    ]
    volume = read(sorted(paths))
    assert np.array_equal(volume.values, SLICES)
    assert volume.spacing == pytest.approx((2.5, 1, 1))


def test_two_slices_at_one_place_are_an_error_that_names_both(tmp_path):
    paths = write_series(tmp_path, shuffled(2))
    write_slice(paths[7], SLICES[7], (0, 0, 3.0 * 4))
    with pytest.raises(DataError, match="two slices lie at the same place") as caught:
        read(paths)
    assert caught.value.where == "file 5 and file 8"


def test_several_volumes_in_one_series_are_an_error(tmp_path):
    paths = write_series(tmp_path / "a", shuffled(2)) + write_series(tmp_path / "b", shuffled(3))
    with pytest.raises(DataError, match="two slices lie at the same place"):
        read(paths)


@pytest.mark.parametrize("missing", [1, 6, 10])
def test_a_gap_is_an_error_that_says_how_wide_it_is(tmp_path, missing):
    paths = write_series(tmp_path, shuffled(2))
    del paths[missing]
    with pytest.raises(DataError, match=r"6\.000 mm apart where slices usually are 3\.000 mm") as caught:
        read(paths)
    assert caught.value.where == f"file {missing} and file {missing + 1}"


def test_positions_of_few_digits_are_no_gap(tmp_path):
    paths = [
        write_slice(tmp_path / f"{n}.dcm", pixels, (0, 0, round(n * 10 / 3, 1))) for n, pixels in enumerate(SLICES)
    ]
    assert np.array_equal(read(paths).values, SLICES)


def test_one_slice_is_a_volume(tmp_path):
    assert read([write_slice(tmp_path / "a.dcm", SLICES[0], (0, 0, 0))]).values.shape == (1, 5, 4)


CHANGES = {
    "series": ({"SeriesInstanceUID": "1.2.4"}, "belongs to another series"),
    "orientation": ({"facing": (0, 1, 0, 0, 0, 1)}, "another orientation"),
    "spacing": ({"spacing": (2, 1)}, "another pixel spacing"),
    "photometric": ({"PhotometricInterpretation": "MONOCHROME1"}, "MONOCHROME1 and MONOCHROME2"),
    "window": ({"WindowCenter": 4, "WindowWidth": 5}, "some slices have a window and some have none"),
    "mosaic": ({"ImageType": ["ORIGINAL", "PRIMARY", "MOSAIC"]}, "a mosaic of many slices"),
    "no position": ({"ImagePositionPatient": None}, "does not say where the slice lies"),
    "no orientation": ({"ImageOrientationPatient": None}, "does not say where the slice lies"),
    "skew": ({"facing": (1, 0, 0, 1, 0, 0)}, "cannot be decoded"),
    "window of no width": ({"WindowCenter": 4, "WindowWidth": 0}, "cannot be decoded"),
    "lookup table": ({"VOILUTSequence": [pydicom.Dataset()]}, "lookup table, not by a window"),
}


@pytest.mark.parametrize(("tags", "message"), CHANGES.values(), ids=CHANGES)
def test_a_file_that_does_not_fit_is_called_by_its_position(tmp_path, tags, message, capsys, caplog, recwarn):
    folder = tmp_path / "Muster_Erika"
    paths = write_series(folder, [f"Muster_{n:02d}.dcm" for n in range(12)])
    tags = dict(tags)
    place, facing = tags.pop("ImagePositionPatient", (0, 0, 15)), tags.pop("ImageOrientationPatient", ())
    if place is None or facing is None:
        header = pydicom.dcmread(paths[5])
        del header["ImagePositionPatient" if place is None else "ImageOrientationPatient"]
        header.save_as(paths[5])
    else:
        write_slice(paths[5], SLICES[5], place, **tags)
    argv = ["slices", "volume", str(folder), "--id", "P1", "--out", str(tmp_path / "out")]
    assert run_command(lambda: main(argv)) == 2
    said = capsys.readouterr().err
    assert message in said
    assert "where: file 6 of the folder, by name" in said
    said += caplog.text + str([str(warning.message) for warning in recwarn])
    assert not any(word in said for word in ("Muster", "Erika", INSTITUTION, PATIENT_ID, UID, "1.2.4"))
    assert not (tmp_path / "out").exists()


def test_another_size_is_an_error(tmp_path):
    paths = write_series(tmp_path, shuffled(2))
    write_slice(paths[5], SLICES[5].T, (0, 0, 15))
    with pytest.raises(DataError, match="5x4 pixels where the first slice has 4x5"):
        read(paths)


def test_frames_of_enhanced_files_are_sorted_like_files(tmp_path):
    order = np.random.default_rng(5).permutation(12)
    path = write_enhanced(tmp_path / "a.dcm", SLICES[order], [(0, 0, 3.0 * number) for number in order])
    assert np.array_equal(read([path]).values, SLICES)
    one = greys([path], tmp_path / "enhanced")
    other = greys(write_series(tmp_path / "series", shuffled(4)), tmp_path / "classic")
    assert all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_a_fault_in_an_enhanced_file_names_the_frame(tmp_path):
    path = write_enhanced(tmp_path / "a.dcm", SLICES[:3], [(0, 0, 0), (0, 0, 3), (0, 0, 3)])
    with pytest.raises(DataError, match="same place") as caught:
        read([path])
    assert caught.value.where == "frame 2 of file 1 and frame 3 of file 1"


def test_one_window_serves_all_slices(tmp_path):
    two = [np.array([[0, 100]], np.uint16), np.array([[50, 200]], np.uint16)]
    paths = write_series(tmp_path / "a", ["0.dcm", "1.dcm"], two)
    assert [grey.tolist() for grey in greys(paths, tmp_path / "full")] == [[[0, 128]], [[64, 255]]]
    paths = write_series(
        tmp_path / "b", ["0.dcm", "1.dcm"], two, WindowCenter=100, WindowWidth=200, VOILUTFunction="LINEAR_EXACT"
    )
    assert [grey.tolist() for grey in greys(paths, tmp_path / "tags")] == [[[0, 128]], [[64, 255]]]


def test_different_windows_become_one_that_covers_them(tmp_path):
    windows = {"VOILUTFunction": "LINEAR_EXACT"}
    paths = [
        write_slice(
            tmp_path / "0.dcm", np.array([[0, 100]], np.uint16), (0, 0, 0), WindowCenter=50, WindowWidth=100, **windows
        ),
        write_slice(
            tmp_path / "1.dcm",
            np.array([[50, 200]], np.uint16),
            (0, 0, 1),
            WindowCenter=150,
            WindowWidth=100,
            **windows,
        ),
    ]
    assert [grey.tolist() for grey in greys(paths, tmp_path / "out")] == [[[0, 128]], [[64, 255]]]


def test_slope_and_intercept_of_each_slice_come_before_the_window(tmp_path):
    paths = [
        write_slice(
            tmp_path / "0.dcm",
            np.array([[864, 1064, 1263]], np.uint16),
            (0, 0, 0),
            RescaleSlope=1,
            RescaleIntercept=-1024,
            WindowCenter=40,
            WindowWidth=400,
        ),
        write_slice(
            tmp_path / "1.dcm",
            np.array([[432, 532, 631.5]]).astype(np.uint16),
            (0, 0, 1),
            RescaleSlope=2,
            RescaleIntercept=-1024,
            WindowCenter=40,
            WindowWidth=400,
        ),
    ]
    first, second = greys(paths, tmp_path / "out")
    assert first.tolist() == [[0, 128, 255]]
    assert second.tolist() == [[0, 128, 254]]


def test_the_same_display_stored_inverted_gives_the_same_slices(tmp_path):
    plain = write_series(tmp_path / "a", shuffled(1))
    inverted = write_series(tmp_path / "b", shuffled(2), 899 - SLICES, PhotometricInterpretation="MONOCHROME1")
    low, high = SLICES.min(), SLICES.max()
    one = greys(plain, tmp_path / "one")
    assert np.array_equal(np.stack(one), np.floor((SLICES - float(low)) / (high - low) * 255 + 0.5))
    other = greys(inverted, tmp_path / "other")
    # Rounding halves go the other way when black and white are exchanged.
    assert np.abs(np.stack(one).astype(int) - np.stack(other)).max() <= 1
    exact = np.stack(one).astype(np.uint8)
    eight = [
        write_series(tmp_path / "c", shuffled(1), exact),
        write_series(tmp_path / "d", shuffled(1), 255 - exact, PhotometricInterpretation="MONOCHROME1"),
    ]
    files = [
        convert_volume(paths, tmp_path / name, pseudonym="P1").images for name, paths in zip("ef", eight, strict=True)
    ]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


@settings(max_examples=60, deadline=None)
@given(
    cut=st.floats(0.3, 1), edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8)
)
def test_damaged_files_give_a_volume_or_a_data_error(tmp_path_factory, cut, edits):
    folder = tmp_path_factory.getbasetemp() / "damaged-series"
    paths = write_series(folder, ["0.dcm", "1.dcm", "2.dcm"], SLICES[:3], WindowCenter=4, WindowWidth=9, RescaleSlope=2)
    data = bytearray(paths[1].read_bytes())
    data = data[: int(len(data) * cut)]
    for place, value in edits:
        data[128 + int((len(data) - 128) * place)] = value
    paths[1].write_bytes(data)
    try:
        converted = convert_volume(paths, folder / "out", pseudonym="P1")
    except DataError:
        return
    assert len(converted.images) == 3


def store():
    data = pytest.importorskip("data_store", reason="pydicom-data is not installed (extra `realdata`)")
    return Path(data.__file__).parent / "data"


@pytest.mark.realdata
def test_a_real_enhanced_head_without_positions_is_refused(tmp_path):
    with pytest.raises(DataError, match="does not say where the slice lies"):
        convert_volume([store() / "emri_small.dcm"], tmp_path, pseudonym="P1")


@pytest.mark.realdata
def test_a_real_head_is_the_same_as_one_enhanced_file_and_as_shuffled_slices(tmp_path):
    pixels = pydicom.dcmread(store() / "emri_small.dcm").pixel_array
    assert pixels.shape == (10, 64, 64)
    order = np.random.default_rng(1).permutation(10)
    enhanced = write_enhanced(tmp_path / "a.dcm", pixels[order], [(0, 0, 1.2 * number) for number in order])
    names = random.Random(0).sample([f"{number}.dcm" for number in range(10)], 10)
    classic = write_series(tmp_path / "series", names, pixels, gap=1.2)
    one, other = greys([enhanced], tmp_path / "one"), greys(classic, tmp_path / "other")
    low, high = float(pixels.min()), float(pixels.max())
    for mine, theirs, stored in zip(one, other, pixels, strict=True):
        assert np.array_equal(mine, theirs)
        assert np.array_equal(mine, np.floor((stored - low) / (high - low) * 255 + 0.5))


@pytest.mark.realdata
def test_a_real_enhanced_perfusion_file_stored_head_first_comes_out_feet_first(tmp_path):
    path = store() / "eCT_Supplemental.dcm"
    header = pydicom.dcmread(path)
    heights = [
        float(each.PlanePositionSequence[0].ImagePositionPatient[2]) for each in header.PerFrameFunctionalGroupsSequence
    ]
    normal_up = np.cross([-1, 0, 0], [0, 1, 0])[2] > 0
    expected = np.argsort(heights) if normal_up else np.argsort(heights)[::-1]
    volume = read([path])
    assert np.array_equal(volume.values, header.pixel_array[expected].astype(float) - 1024)
    assert volume.tags.centre == 49


@pytest.mark.realdata
@pytest.mark.parametrize(
    ("name", "shape"),
    [("MR2_UNCI.dcm", (1024, 1024)), ("MR-SIEMENS-DICOM-WithOverlays.dcm", (484, 484)), ("693_UNCI.dcm", (512, 512))],
)
def test_a_real_slice_alone_is_read_whatever_its_plane(name, shape):
    assert read([store() / name]).values.shape == (1, *shape)


@pytest.mark.realdata
def test_real_slices_of_different_series_do_not_mix():
    with pytest.raises(DataError, match="another series"):
        read([store() / "MR2_UNCI.dcm", store() / "MR-SIEMENS-DICOM-WithOverlays.dcm"])


@pytest.mark.realdata
def test_a_real_mosaic_and_a_truncated_slice_are_refused(tmp_path):
    nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed (extra `prep`)")
    with pytest.raises(DataError, match="mosaic of many slices"):
        read([Path(nibabel.__file__).parent / "tests/data/0.dcm"])
    with pytest.raises(DataError, match="cannot be decoded"):
        read([Path(pydicom.__file__).parent / "data/test_files/MR_truncated.dcm"])


def test_names_stay_out_of_what_is_written(tmp_path):
    paths = write_series(tmp_path / "series", shuffled(1))
    out = tmp_path / "out"
    convert_volume(paths, out, pseudonym="P1")
    words = [word.encode() for word in (NAME, "Muster", INSTITUTION, PATIENT_ID, UID, "1.2.3")]
    assert not [path for path in out.iterdir() for word in words if word in path.read_bytes()]


def test_write_dicom_really_writes_names(tmp_path):
    assert NAME.encode() in write_dicom(tmp_path / "a.dcm", SLICES[0]).read_bytes()
