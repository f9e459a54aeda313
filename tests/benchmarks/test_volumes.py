import gzip
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.dataset import read_records
from benchmarks.errors import DataError
from benchmarks.slices import make_slices
from benchmarks.slices_quirks import Quirks
from benchmarks.volumes_rows import convert_volume
from recipes.errors import run_command
from tests.benchmarks.dicom_files import write_slice
from tests.benchmarks.mri_files import write_h5

nibabel = pytest.importorskip("nibabel", reason="nibabel is not installed (extra `prep`)")

PLANES = ("axial", "coronal", "sagittal")


def write_nifti(path, values, affine, **options):
    image = nibabel.Nifti1Image(np.asarray(values), np.asarray(affine, float), **options)
    nibabel.save(image, path)
    return path


def steps(*sides, offset=(0, 0, 0)):
    """A diagonal affine: step of each axis to the right, front and head, in mm."""
    affine = np.diag([*map(float, sides), 1.0])
    affine[:3, 3] = offset
    return affine


def slices(path, out, plane="native", window="full", **options):
    """Slices as written, shape (slices, rows, columns)."""
    paths = path if isinstance(path, list) else [path]
    converted = convert_volume(paths, out, pseudonym="P1", plane=plane, window=window, **options)
    assert [image.name for image in converted.images] == [
        f"P1_slice_{n:03d}.png" for n in range(1, len(converted.images) + 1)
    ]
    return np.stack([np.asarray(Image.open(image)) for image in converted.images])


def bright(greys):
    """Frame (from 1), row and column of the one bright pixel."""
    [(frame, row, column)] = np.argwhere(greys == 255)
    return int(frame) + 1, int(row), int(column)


def test_an_axis_that_runs_the_other_way_puts_the_voxel_on_the_other_side(tmp_path):
    values = np.zeros((4, 3, 2))
    values[3, 1, 0] = 1
    right = slices(write_nifti(tmp_path / "a.nii", values, steps(1, 1, 1)), tmp_path / "a")
    left = slices(write_nifti(tmp_path / "b.nii", values, steps(-1, 1, 1, offset=(3, 0, 0))), tmp_path / "b")
    assert right.shape == left.shape == (2, 3, 4)
    # Voxel 3 is the patient's rightmost in the first array, shown on the left; the leftmost in the second.
    assert (bright(right), bright(left)) == ((1, 1, 0), (1, 1, 3))


def test_two_arrays_of_the_same_anatomy_give_the_same_slices(tmp_path):
    values = np.zeros((4, 3, 2))
    values[3, 1, 0] = 1
    one = slices(write_nifti(tmp_path / "a.nii", values, steps(1, 1, 1)), tmp_path / "a")
    other = slices(write_nifti(tmp_path / "b.nii", values[::-1], steps(-1, 1, 1, offset=(3, 0, 0))), tmp_path / "b")
    assert np.array_equal(one, other)


@pytest.mark.parametrize(
    ("plane", "shape", "places"),
    [
        # The one voxel that is rightmost, foremost and highest, then leftmost, hindmost and lowest.
        ("axial", (2, 3, 4), [(2, 0, 0), (1, 2, 3)]),
        ("coronal", (3, 2, 4), [(1, 0, 0), (3, 1, 3)]),
        ("sagittal", (4, 2, 3), [(4, 0, 0), (1, 1, 2)]),
    ],
)
def test_planes_are_shown_as_documented(tmp_path, plane, shape, places):
    for voxel, place in zip([(3, 2, 1), (0, 0, 0)], places, strict=True):
        values = np.zeros((4, 3, 2))
        values[voxel] = 1
        greys = slices(write_nifti(tmp_path / "a.nii", values, steps(1, 1, 1)), tmp_path / "out", plane)
        assert greys.shape == shape
        assert bright(greys) == place


def stored_otherwise(values, affine, order, flips):
    """The same anatomy with its axes in another order and direction."""
    shape = values.shape
    move = np.eye(4)
    for axis in flips:
        flip = np.eye(4)
        flip[axis, axis], flip[axis, 3] = -1, shape[axis] - 1
        move = move @ flip
    moved = np.flip(values, flips) if flips else values
    swap = np.eye(4)
    swap[:3, :3] = np.eye(3)[:, order]
    return np.transpose(moved, order), affine @ move @ swap


@settings(max_examples=40, deadline=None)
@given(
    order=st.permutations(range(3)),
    flips=st.sets(st.integers(0, 2)),
    plane=st.sampled_from(["native", *PLANES]),
    sides=st.sampled_from([(1, 1, 1), (1, 1, 5), (4, 0.5, 0.5), (0.5, 6, 0.5), (1, 2, 2)]),
    seed=st.integers(0, 9),
)
def test_slices_do_not_depend_on_how_the_anatomy_is_stored(tmp_path_factory, order, flips, plane, sides, seed):
    folder = tmp_path_factory.mktemp("stored")
    values = np.random.default_rng(seed).integers(0, 200, (4, 3, 5)).astype(np.int16)
    affine = steps(*sides, offset=(-7, 3, 20))
    one = slices(write_nifti(folder / "a.nii", values, affine), folder / "a", plane)
    other = slices(
        write_nifti(folder / "b.nii", *stored_otherwise(values, affine, order, tuple(flips))), folder / "b", plane
    )
    assert np.array_equal(one, other)
    assert (folder / "a/P1_volume.json").read_bytes() == (folder / "b/P1_volume.json").read_bytes()


@pytest.mark.parametrize(
    ("sides", "plane"),
    [
        ((1, 1, 1), "axial"),
        ((1, 1, 5), "axial"),
        ((5, 1, 1), "sagittal"),
        ((1, 5, 1), "coronal"),
        ((5, 5, 1), "coronal"),
    ],
)
def test_native_is_the_plane_across_the_coarsest_side(tmp_path, sides, plane):
    path = write_nifti(tmp_path / "a.nii", np.arange(24.0).reshape(4, 3, 2), steps(*sides))
    assert np.array_equal(slices(path, tmp_path / "a"), slices(path, tmp_path / "b", plane))


@pytest.mark.parametrize("plane", PLANES)
def test_dicom_and_nifti_of_one_anatomy_give_the_same_slices(tmp_path, plane):
    # An axial series: columns to the left, rows to the back, slices to the head; so the array runs left, back, head.
    pixels = np.random.default_rng(3).integers(0, 900, (6, 5, 4)).astype(np.uint16)
    series = [
        write_slice(tmp_path / f"{9 - n}.dcm", each, (-20, -30, 2.0 * n), spacing=(1.5, 0.5))
        for n, each in enumerate(pixels)
    ]
    affine = steps(-0.5, -1.5, 2, offset=(20, 30, 0))
    nifti = write_nifti(tmp_path / "a.nii", pixels.transpose(2, 1, 0), affine)
    one, other = slices(series, tmp_path / "a", plane), slices(nifti, tmp_path / "b", plane)
    assert np.array_equal(one, other)
    notes = [json.loads((tmp_path / name / "P1_volume.json").read_text()) for name in "ab"]
    assert notes[0] == notes[1]
    if plane == "axial":
        assert notes[0]["spacing_mm"] == [2, 1.5, 0.5]
        assert np.array_equal(one, slices(series, tmp_path / "c"))


def test_dicom_pictures_stay_as_stored_unless_a_plane_is_asked_for(tmp_path):
    pixels = np.random.default_rng(3).integers(0, 900, (3, 5, 4)).astype(np.uint16)
    mirrored = [
        write_slice(tmp_path / f"{n}.dcm", each, (20, -30, -2.0 * n), facing=(-1, 0, 0, 0, 1, 0))
        for n, each in enumerate(pixels)
    ]
    stored = slices(mirrored, tmp_path / "a")
    assert np.array_equal(slices(mirrored, tmp_path / "b", "axial"), stored[::-1, :, ::-1])


def test_an_oblique_volume_is_not_resampled_and_its_angle_is_kept(tmp_path):
    values = np.random.default_rng(0).integers(0, 200, (4, 3, 5)).astype(np.int16)
    turn = np.eye(4)
    turn[1:3, 1:3] = [[np.cos(0.3), -np.sin(0.3)], [np.sin(0.3), np.cos(0.3)]]
    straight = slices(write_nifti(tmp_path / "a.nii", values, steps(1, 1, 3)), tmp_path / "a")
    oblique = slices(write_nifti(tmp_path / "b.nii", values, turn @ steps(1, 1, 3)), tmp_path / "b")
    assert np.array_equal(straight, oblique)
    note = json.loads((tmp_path / "b/P1_volume.json").read_text())
    assert note["degrees_oblique"] == pytest.approx(np.degrees(0.3), abs=0.01)
    assert (note["plane"], note["directions"]) == ("axial", "SPL")


def test_windows(tmp_path):
    values = np.arange(1000.0).reshape(10, 10, 10)
    values[0, 0, 0], values[9, 9, 9] = -5000, 9000
    path = write_nifti(tmp_path / "a.nii", values, steps(1, 1, 1))
    low, high = np.percentile(values, [0.5, 99.5])

    def shown(window):
        return slices(path, tmp_path / "out", window=window)[:, ::-1, ::-1].transpose(2, 1, 0)

    expected = np.floor(np.clip((values - low) / (high - low), 0, 1) * 255 + 0.5)
    assert np.array_equal(shown(None), expected)
    assert np.array_equal(shown("percentiles"), expected)
    assert np.array_equal(shown("full"), np.floor((values + 5000) / 14000 * 255 + 0.5))
    assert np.array_equal(shown("slice")[..., 9], np.floor(np.maximum(values[..., 9], 0) / 9000 * 255))


def test_scaling_and_byte_order_do_not_show(tmp_path):
    stored = np.random.default_rng(1).integers(-300, 300, (4, 3, 5)).astype(np.int16)
    plain = slices(write_nifti(tmp_path / "a.nii", stored * -0.5 + 7, steps(1, 1, 1)), tmp_path / "a")
    image = nibabel.Nifti1Image(stored, steps(1, 1, 1), nibabel.Nifti1Header(endianness=">"))
    image.header.set_slope_inter(-0.5, 7)
    image.to_filename(tmp_path / "b.nii")
    raw = nibabel.load(tmp_path / "b.nii")
    assert (raw.header.endianness, raw.dataobj.slope) == (">", -0.5)
    assert np.array_equal(slices(tmp_path / "b.nii", tmp_path / "b"), plain)


def test_a_compressed_file_is_the_same(tmp_path):
    values = np.arange(24.0).reshape(4, 3, 2)
    paths = [write_nifti(tmp_path / name, values, steps(1, 1, 1)) for name in ("a.nii", "b.nii.gz")]
    assert np.array_equal(slices(paths[0], tmp_path / "a"), slices(paths[1], tmp_path / "b"))


def test_one_volume_of_a_4_d_file_is_chosen_by_its_number(tmp_path):
    values = np.random.default_rng(0).integers(0, 200, (4, 3, 5, 3)).astype(np.int16)
    path = write_nifti(tmp_path / "a.nii", values, steps(1, 1, 1))
    for number in (1, 2, 3):
        alone = write_nifti(tmp_path / "b.nii", values[..., number - 1], steps(1, 1, 1))
        assert np.array_equal(slices(path, tmp_path / "a", number=number), slices(alone, tmp_path / "b"))
    single = write_nifti(tmp_path / "c.nii", values[..., :1], steps(1, 1, 1))
    assert np.array_equal(slices(single, tmp_path / "c"), slices(path, tmp_path / "a", number=1))


VALUES = np.arange(24.0).reshape(4, 3, 2)


def without_place(path):
    image = nibabel.Nifti1Image(VALUES, None)
    image.set_sform(None, code=0)
    image.set_qform(None, code=0)
    nibabel.save(image, path)


def contradictory(path):
    image = nibabel.Nifti1Image(VALUES, steps(1, 1, 1))
    image.set_sform(steps(1, 1, 1), code=1)
    image.set_qform(steps(-1, 1, 1), code=1)
    nibabel.save(image, path)


def colour(path):
    voxels = np.zeros((4, 3, 2), [("R", "u1"), ("G", "u1"), ("B", "u1")])
    nibabel.save(nibabel.Nifti1Image(voxels, steps(1, 1, 1)), path)


def truncated(path):
    write_nifti(path, np.zeros((20, 20, 20)), steps(1, 1, 1))
    path.write_bytes(path.read_bytes()[:-4000])


def without_second_axis(path):
    write_nifti(path, VALUES, steps(1, 1, 1))
    data = bytearray(path.read_bytes())
    # `srow_y` of the header: where the second coordinate comes from.
    data[296:312] = bytes(16)
    path.write_bytes(data)


REFUSED = {
    "missing": (lambda path: None, {}, "does not exist"),
    "text": (lambda path: path.write_text("x" * 4000), {}, "cannot be read"),
    "truncated": (truncated, {}, "cannot be read"),
    "4-D": (lambda path: write_nifti(path, np.ones((4, 3, 2, 5)), steps(1, 1, 1)), {}, "holds 5 volumes and none is"),
    "no such volume": (
        lambda path: write_nifti(path, np.ones((4, 3, 2, 5)), steps(1, 1, 1)),
        {"number": 6},
        "--volume 6 is not one of them",
    ),
    "2-D": (lambda path: write_nifti(path, np.ones((4, 3)), steps(1, 1, 1)), {}, "not that of a volume"),
    "colour": (colour, {}, "not real numbers"),
    "complex": (lambda path: write_nifti(path, VALUES.astype(np.complex64), steps(1, 1, 1)), {}, "not real numbers"),
    "NaN": (lambda path: write_nifti(path, VALUES / VALUES, steps(1, 1, 1)), {}, "not finite numbers"),
    "flat": (lambda path: write_nifti(path, VALUES * 0, steps(1, 1, 1)), {}, "all voxels have the same value"),
    "all but empty": (
        lambda path: write_nifti(path, np.eye(1, 1000).reshape(10, 10, 10), steps(1, 1, 1)),
        {},
        "0.5th and the 99.5th percentile are the same value",
    ),
    "no place": (without_place, {}, "neither sform nor qform is set"),
    "two places": (contradictory, {}, "sform and qform contradict each other: RAS and LAS"),
    "flat space": (without_second_axis, {}, "cannot be told apart"),
    "window of DICOM": (lambda path: write_nifti(path, VALUES, steps(1, 1, 1)), {"window": "tags"}, "have no window"),
    "pseudonym": (lambda path: None, {"pseudonym": "Muster, Erika"}, "is not a pseudonym"),
}


@pytest.mark.parametrize(("make", "options", "message"), REFUSED.values(), ids=REFUSED)
@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning", "ignore:divide by zero:RuntimeWarning")
def test_unusable_files_and_options_are_refused_without_the_files_name(tmp_path, make, options, message):
    path = tmp_path / "Muster_Erika.nii"
    make(path)
    with pytest.raises(DataError, match=message) as caught:
        convert_volume([path], tmp_path / "out", **({"pseudonym": "P1"} | options))
    if "pseudonym" not in options:
        assert "Muster" not in str(caught.value)
    assert caught.value.fix
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("names", "options", "message"),
    [
        (["a.nii", "b.nii"], {}, "2 files are given and one is NIfTI or HDF5"),
        (["a.dcm", "b.h5"], {}, "2 files are given and one is NIfTI or HDF5"),
        (["a.dcm"], {"number": 1}, "--volume is for NIfTI files"),
        (["a.h5"], {}, "the HDF5 file does not exist"),
    ],
)
def test_files_that_are_not_one_volume_are_refused(tmp_path, names, options, message):
    with pytest.raises(DataError, match=message):
        convert_volume([tmp_path / name for name in names], tmp_path / "out", pseudonym="P1", **options)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(DataError, match="the folder holds no files"):
        convert_volume([tmp_path], tmp_path / "out", pseudonym="P1")


def test_hdf5_gives_the_bytes_of_the_benchmark_and_knows_no_planes(tmp_path):
    values = np.random.default_rng(0).normal(1, 1, (12, 7, 9)).astype(np.float32)
    path = write_h5(tmp_path / "fastmri/multicoil_val/file1000990.h5", values)
    tables = Path(__file__).parents[1] / "data/fastmri_plus/cut"
    make_slices(tmp_path / "fastmri", tables, tmp_path / "sgmri", quirks=Quirks(), workers=1)
    converted = convert_volume([path], tmp_path / "out", pseudonym="P1")
    theirs = sorted((tmp_path / "sgmri/data/knee_val_labeled_raw/file1000990").iterdir())
    assert [image.read_bytes() for image in converted.images] == [image.read_bytes() for image in theirs]
    assert (converted.note["plane"], converted.note["directions"]) == ("unknown", None)
    with pytest.raises(DataError, match="does not say how it lies in the body: no axial slices"):
        convert_volume([path], tmp_path / "out", pseudonym="P1", plane="axial")


def test_fewer_slices_than_before_leave_none_of_the_old_ones(tmp_path):
    path = write_nifti(tmp_path / "a.nii", VALUES, steps(1, 1, 1))
    slices(path, tmp_path / "out", "sagittal")
    slices(path, tmp_path / "out", "axial")
    assert len(list((tmp_path / "out").glob("*.png"))) == 2


QUESTIONS = """question,task,answer,boxes
Where is the bright voxel?,grounding,,"1,0,1,1,2,spot"
How many slices are there?,vqa,two,
"""


def test_whole_path_from_a_volume_to_a_dataset_with_frames_and_boxes(tmp_path, capsys):
    values = np.zeros((4, 3, 2))
    values[3, 1, 0] = 1
    out = tmp_path / "out"
    (tmp_path / "q.csv").write_text(QUESTIONS)
    path = write_nifti(tmp_path / "Muster.nii.gz", np.flip(values, (0, 2)), steps(-1, 1, -1))
    argv = ["slices", "volume", str(path), "--id", "P1", "--out", str(out), "--questions", str(tmp_path / "q.csv")]
    assert main([*argv, "--window", "full", "--plane", "axial"]) == 0
    said = capsys.readouterr().out
    assert f"next: python -m benchmarks prepare generic {out / 'rows.jsonl'} --out DATASET" in said
    assert "Muster" not in said + "".join(p.read_bytes().decode("latin-1") for p in out.iterdir())
    assert main(["prepare", "generic", str(out / "rows.jsonl"), "--out", str(tmp_path / "data")]) == 0
    grounding, counting = read_records(tmp_path / "data", "test")
    assert [image.frame for image in grounding.images] == [1, 2]
    assert [image.path for image in counting.images] == ["P1_slice_001.png", "P1_slice_002.png"]
    assert (grounding.group, grounding.strata) == ("P1", {"plane": "axial"})
    [box] = grounding.target.boxes
    x1, y1, x2, y2 = map(int, box.xyxy)
    inside = np.zeros((2, 3, 4), bool)
    inside[box.image, y1:y2, x1:x2] = True
    shown = np.stack([np.asarray(Image.open(out / image.path)) for image in grounding.images])
    assert np.array_equal(shown == 255, inside)


def test_a_second_volume_in_the_folder_leaves_the_questions_about_the_first(tmp_path):
    path, out = write_nifti(tmp_path / "a.nii", VALUES, steps(1, 1, 1)), tmp_path / "out"

    def asked(name, *questions):
        (tmp_path / "q.csv").write_text("\n".join(["question,answer", *(f"{question},yes" for question in questions)]))
        words = ["--questions", str(tmp_path / "q.csv")] if questions else []
        assert main(["slices", "volume", str(path), "--id", name, "--out", str(out), *words]) == 0
        rows = [json.loads(line) for line in (out / "rows.jsonl").read_text().splitlines()]
        return [(row["group"], row["question"]) for row in rows]

    assert asked("P1", "a", "b") == [("P1", "a"), ("P1", "b")]
    assert asked("P2", "c") == [("P1", "a"), ("P1", "b"), ("P2", "c")]
    assert asked("P1", "d") == [("P2", "c"), ("P1", "d")]
    assert asked("P3") == asked("P3") == [("P2", "c"), ("P1", "d"), ("P3", "")]
    with pytest.raises(DataError, match="row 2") as raised:
        asked("P1")
    assert "would be lost" in raised.value.message
    assert asked("P3") == [("P2", "c"), ("P1", "d"), ("P3", "")]


def test_without_questions_one_row_waits_and_pixels_that_are_not_square_are_said(tmp_path, capsys):
    path = write_nifti(tmp_path / "a.nii", VALUES, steps(1, 2, 5))
    argv = ["slices", "volume", str(path), "--id", "P1", "--out", str(tmp_path / "out")]
    assert main(argv) == 0
    said = capsys.readouterr().out
    assert "with one row about P1: fill in question and answer" in said
    assert "pixels are not square: 1 mm wide, 2 mm high" in said
    assert run_command(lambda: main(["prepare", "generic", str(tmp_path / "out/rows.jsonl"), "--out", "x"])) == 2


@settings(max_examples=80, deadline=None)
@given(
    cut=st.floats(0.1, 1),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
    packed=st.booleans(),
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_damaged_files_give_slices_or_a_data_error(tmp_path_factory, cut, edits, packed):
    folder = tmp_path_factory.getbasetemp() / "damaged-nifti"
    folder.mkdir(exist_ok=True)
    data = bytearray(write_nifti(folder / "good.nii", VALUES, steps(1, 1, 1)).read_bytes())
    for place, value in edits:
        data[int(len(data) * place)] = value
    if packed:
        data = bytearray(gzip.compress(bytes(data)))
    path = folder / f"damaged.nii{'.gz' if packed else ''}"
    path.write_bytes(data[: int(len(data) * cut)])
    try:
        converted = convert_volume([path], folder / "out", pseudonym="P1")
    except DataError:
        return
    assert converted.images


def nibabel_file(name):
    return Path(nibabel.__file__).parent / "tests/data" / name


def test_a_real_big_endian_volume_equals_its_little_endian_copy_in_canonical_order(tmp_path):
    path = nibabel_file("anatomical.nii")
    image = nibabel.load(path)
    assert (image.header.endianness, nibabel.aff2axcodes(image.affine)) == (">", ("L", "A", "S"))
    canonical = nibabel.as_closest_canonical(image)
    values = np.asarray(canonical.dataobj).astype("<i2")
    copy = write_nifti(tmp_path / "copy.nii.gz", values, canonical.affine)
    for plane in ("native", *PLANES):
        one = slices(path, tmp_path / "a", plane)
        assert np.array_equal(one, slices(copy, tmp_path / "b", plane))
    low, high = float(values.min()), float(values.max())
    shown = slices(path, tmp_path / "a", "axial")
    for frame, row, column in itertools.islice(np.ndindex(shown.shape), 0, None, 97):
        value = values[values.shape[0] - 1 - column, values.shape[1] - 1 - row, frame]
        assert shown[frame, row, column] == np.floor((value - low) / (high - low) * 255 + 0.5)


def test_a_real_oblique_4_d_volume_needs_a_number(tmp_path):
    path = nibabel_file("example4d.nii.gz")
    with pytest.raises(DataError, match="holds 2 volumes and none is chosen"):
        slices(path, tmp_path / "a")
    assert slices(path, tmp_path / "a", number=2).shape == (24, 96, 128)
    note = json.loads((tmp_path / "a/P1_volume.json").read_text())
    assert note["degrees_oblique"] > 5
    assert (note["plane"], note["directions"]) == ("axial", "SPL")


def test_a_real_scaled_volume_is_windowed_after_scaling(tmp_path):
    path = nibabel_file("functional.nii")
    values = nibabel.load(path).get_fdata()[..., 4]
    assert nibabel.load(path).dataobj.slope not in (None, 1)
    converted = convert_volume([path], tmp_path, pseudonym="P1", number=5, window="full")
    assert converted.note["window"] == f"full: {values.min():g} to {values.max():g}"


@pytest.mark.realdata
def test_a_real_brain_is_shown_as_radiologists_do(tmp_path):
    nilearn = pytest.importorskip("nilearn", reason="nilearn is not installed (extra `realdata`)")
    path = Path(nilearn.__file__).parent / "datasets/data/mni_icbm152_t1_tal_nlin_sym_09a_converted.nii.gz"
    values = np.asarray(nibabel.load(path).dataobj)
    assert nibabel.aff2axcodes(nibabel.load(path).affine) == ("R", "A", "S")
    full = np.floor(values.astype(float) / values.max() * 255 + 0.5)
    shown = slices(path, tmp_path / "a")
    assert shown.shape == (189, 233, 197)
    assert np.array_equal(shown[90], np.rot90(full[:, :, 90])[:, ::-1])
    assert np.array_equal(slices(path, tmp_path / "a", "coronal")[0], np.rot90(full[:, -1])[:, ::-1])
    assert np.array_equal(slices(path, tmp_path / "a", "sagittal")[98], np.rot90(full[98])[:, ::-1])
