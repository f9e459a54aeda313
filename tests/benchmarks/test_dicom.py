import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.dataset import read_records
from benchmarks.dicom import read_frames
from benchmarks.dicom_rows import convert
from benchmarks.errors import DataError
from benchmarks.prepare import prepare
from recipes.errors import run_command
from tests.benchmarks.dicom_files import INSTITUTION, NAME, PATIENT_ID, UID, pydicom, write_dicom


def frame(path, window=None):
    return read_frames(path, window, where="DICOM file 1")[0][0].tolist()


def test_slope_and_intercept_come_before_the_window(tmp_path):
    path = write_dicom(
        tmp_path / "a.dcm",
        np.array([[864, 1064, 1263]], np.uint16),
        RescaleSlope=1,
        RescaleIntercept=-1024,
        WindowCenter=40,
        WindowWidth=400,
    )
    assert frame(path) == [[0, 128, 255]]


def test_monochrome1_is_inverted_once_after_the_window(tmp_path):
    pixels = np.array([[0, 128, 255]], np.uint8)
    straight = write_dicom(tmp_path / "a.dcm", pixels)
    inverted = write_dicom(tmp_path / "b.dcm", pixels, PhotometricInterpretation="MONOCHROME1")
    assert frame(straight) == [[0, 128, 255]]
    assert frame(inverted) == [[255, 127, 0]]


def test_the_same_display_stored_inverted_gives_the_same_png(tmp_path):
    pixels = np.arange(256, dtype=np.uint8).reshape(16, 16)
    one = write_dicom(tmp_path / "a.dcm", pixels)
    other = write_dicom(tmp_path / "b.dcm", 255 - pixels, PhotometricInterpretation="MONOCHROME1")
    files = [convert([path], tmp_path / path.stem, patient="P1").images[0] for path in (one, other)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("tags", "values", "expected"),
    [
        ({"WindowCenter": 50, "WindowWidth": 1}, [49, 50, 51], [0, 255, 255]),
        ({"WindowCenter": 50, "WindowWidth": 100, "VOILUTFunction": "LINEAR_EXACT"}, [0, 50, 100], [0, 128, 255]),
        ({"WindowCenter": 50, "WindowWidth": 100, "VOILUTFunction": "SIGMOID"}, [0, 50, 100], [30, 128, 225]),
        ({"WindowCenter": [50, 900], "WindowWidth": [101, 5]}, [0, 50, 100], [1, 129, 255]),
        ({}, [10, 20, 30], [0, 128, 255]),
        ({"RescaleSlope": -1}, [10, 20, 30], [255, 128, 0]),
        ({"PhotometricInterpretation": None}, [10, 20, 30], [0, 128, 255]),
    ],
    ids=["width 1", "exact", "sigmoid", "first of two", "no tags", "negative slope", "no photometric"],
)
def test_window_functions_and_defaults(tmp_path, tags, values, expected):
    path = write_dicom(tmp_path / "a.dcm", np.array([values], np.uint16), **tags)
    assert frame(path, "tags") == [expected]


def test_full_ignores_the_files_window(tmp_path):
    path = write_dicom(tmp_path / "a.dcm", np.array([[0, 100]], np.uint16), WindowCenter=1, WindowWidth=2)
    assert frame(path, "full") == [[0, 255]]


def test_nm_window_is_the_default_for_nuclear_medicine_only(tmp_path):
    counts = np.zeros((20, 50), np.uint16)
    counts.flat[:] = np.arange(1000)
    counts.flat[-1] = 60000
    nm = write_dicom(tmp_path / "nm.dcm", counts, Modality="NM")
    greys, used = read_frames(nm, None, where="")
    top = np.percentile(counts, 99.7)
    expected = np.floor(255 * np.clip(counts / top, 0, 1) ** 0.6 + 0.5)
    assert used == "nm"
    assert np.array_equal(greys[0], expected)
    assert read_frames(write_dicom(tmp_path / "ct.dcm", counts), None, where="")[1] == "tags"


def test_frames_of_enhanced_files_use_their_own_rescale_and_window(tmp_path):
    def item(**values):
        dataset = pydicom.Dataset()
        for keyword, value in values.items():
            setattr(dataset, keyword, value)
        return dataset

    shared = item(
        PixelValueTransformationSequence=[item(RescaleSlope=2, RescaleIntercept=0)],
        FrameVOILUTSequence=[item(WindowCenter=100, WindowWidth=200, VOILUTFunction="LINEAR_EXACT")],
    )
    own = item(PixelValueTransformationSequence=[item(RescaleSlope=1, RescaleIntercept=0)])
    path = write_dicom(
        tmp_path / "a.dcm",
        np.array([[[0, 50, 100]], [[0, 50, 100]]], np.uint16),
        SharedFunctionalGroupsSequence=[shared],
        PerFrameFunctionalGroupsSequence=[pydicom.Dataset(), own],
    )
    greys, _ = read_frames(path, None, where="")
    assert [grey.tolist() for grey in greys] == [[[0, 128, 255]], [[0, 64, 128]]]


PIXELS = np.arange(16, dtype=np.uint16).reshape(4, 4)


def truncated_file(path):
    write_dicom(path, np.zeros((64, 64), np.uint16))
    path.write_bytes(path.read_bytes()[:-3000])


REFUSED = {
    "missing": (lambda path: None, "does not exist"),
    "not DICOM": (lambda path: path.write_bytes(b"x" * 400), "not a readable DICOM file"),
    "empty": (lambda path: path.write_bytes(b""), "not a readable DICOM file"),
    "truncated": (truncated_file, "cannot be decoded|not a readable"),
    "too few pixels": (
        lambda path: write_dicom(path, PIXELS, PixelData=PIXELS.tobytes()[:-8]),
        "pixel data cannot be decoded",
    ),
    "no pixels": (lambda path: write_dicom(path, PIXELS, PixelData=None), "no pixel data"),
    "colour": (
        lambda path: write_dicom(path, PIXELS, PhotometricInterpretation="PALETTE COLOR"),
        "not single-channel grey",
    ),
    "burned-in text": (lambda path: write_dicom(path, PIXELS, BurnedInAnnotation="YES"), "burned into the picture"),
    "flat": (lambda path: write_dicom(path, PIXELS * 0 + 7), "the same value"),
    "no counts": (lambda path: write_dicom(path, np.array([[-2, 0]], np.int16), Modality="NM"), "holds no counts"),
    "impossible window": (
        lambda path: write_dicom(path, PIXELS, WindowCenter=1, WindowWidth=0),
        "pixel data cannot be decoded",
    ),
    "window without centre": (lambda path: write_dicom(path, PIXELS, WindowWidth=5), "pixel data cannot be decoded"),
    "lookup table": (
        lambda path: write_dicom(path, PIXELS, VOILUTSequence=[pydicom.Dataset()]),
        "lookup table, not by a window",
    ),
    "modality table": (
        lambda path: write_dicom(path, PIXELS, ModalityLUTSequence=[pydicom.Dataset()]),
        "lookup table instead of slope",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_unusable_file_is_refused_without_naming_anybody(tmp_path, make, message, recwarn, capsys, caplog):
    path = tmp_path / "Muster_Erika.dcm"
    make(path)
    argv = ["dicom", str(path), "--out", str(tmp_path / "out"), "--id", "P1"]
    with pytest.raises(DataError, match=message):
        main(argv)
    assert run_command(lambda: main(argv)) == 2
    err = capsys.readouterr().err
    assert "DICOM file 1 of the command line" in err
    said = err + caplog.text + str([str(warning.message) for warning in recwarn])
    assert not any(word in said for word in ("Muster", "Erika", INSTITUTION, PATIENT_ID, UID))
    assert not (tmp_path / "out").exists()


def test_two_frames_with_views_become_a_pair_in_view_order(tmp_path):
    pixels = np.stack([PIXELS, PIXELS[::-1]])
    path = write_dicom(tmp_path / "a.dcm", pixels)
    converted = convert([path], tmp_path / "out", patient="P1", views=["POST", "ANT"])
    assert [image.name for image in converted.images] == ["P1-ANT.png", "P1-POST.png"]
    [row] = map(json.loads, converted.rows.read_text().splitlines())
    assert (row["images"], row["view"], row["group"]) == (["P1-ANT.png", "P1-POST.png"], ["ANT", "POST"], "P1")
    assert np.array_equal(np.asarray(Image.open(converted.images[1])), frame(path))


def test_frames_without_views_are_numbered_across_files(tmp_path):
    files = [write_dicom(tmp_path / "a.dcm", np.stack([PIXELS, PIXELS])), write_dicom(tmp_path / "b.dcm", PIXELS)]
    converted = convert(files, tmp_path / "out", patient="P1")
    [row] = map(json.loads, converted.rows.read_text().splitlines())
    assert row["images"] == ["P1-001.png", "P1-002.png", "P1-003.png"]
    assert row["frame"] == [1, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"patient": "Muster, Erika"}, "is not a pseudonym"),
        ({"patient": "../x"}, "is not a pseudonym"),
        ({"views": ["ANT", "POST"]}, "2 views are named for 1 images"),
        ({"views": ["a/b"]}, "not different names"),
        ({"mirror": True}, "--mirror needs one image"),
        ({"mirror": True, "views": ["LAT"]}, "--mirror needs one image"),
    ],
)
def test_wrong_options_are_refused(tmp_path, options, message):
    path = write_dicom(tmp_path / "a.dcm", PIXELS)
    with pytest.raises(DataError, match=message):
        convert([path], tmp_path / "out", **({"patient": "P1"} | options))


def test_questions_may_not_name_images(tmp_path):
    (tmp_path / "q.csv").write_text("images,question\na.png,Q?\n")
    with pytest.raises(DataError, match="columns images are filled in"):
        convert([], tmp_path / "out", patient="P1", questions=tmp_path / "q.csv")


def test_template_row_is_refused_until_it_is_filled_in(tmp_path):
    converted = convert([write_dicom(tmp_path / "a.dcm", PIXELS)], tmp_path / "out", patient="P1")
    with pytest.raises(DataError, match="question is empty") as caught:
        prepare("generic", converted.rows, tmp_path / "dataset")
    assert "rows.jsonl row 1, field question" in caught.value.where


def leaked(folder: Path, words: list[bytes]) -> list[str]:
    return [str(path) for path in folder.rglob("*") if path.is_file() if any(w in path.read_bytes() for w in words)]


QUESTIONS = """question,task,answer,label,boxes
Is the left knee hot in both views?,vqa,A focus is present.,yes,
Where is the left knee in both views?,grounding,,,"ANT,140,595,195,665,left knee;POST,61,595,116,665,left knee"
Judge the left knee in the anterior view.,grounded_vqa,A focus is present.,abnormal,"ANT,140,595,195,665,left knee"
"""


def prepared_flow(file, tmp_path, capfd):
    """DICOM -> images and rows -> prepared dataset, as separate commands; returns all output."""
    (tmp_path / "q.csv").write_text(QUESTIONS)
    commands = [
        f"dicom {file} --out {tmp_path}/scan --id P001 --view ANT --mirror --questions {tmp_path}/q.csv",
        f"prepare generic {tmp_path}/scan/rows.jsonl --benchmark scintiground --out {tmp_path}/scan/dataset",
        f"validate {tmp_path}/scan/dataset",
    ]
    for command in commands:
        assert subprocess.run([sys.executable, "-m", "benchmarks", *command.split()], check=False).returncode == 0
    captured = capfd.readouterr()
    return captured.out + captured.err


def test_whole_path_from_dicom_to_a_dataset_with_stated_stand_in(tmp_path, capfd):
    pixels = np.zeros((1024, 256), np.int16)
    pixels[600:660, 150:180] = 200
    pixels[:, 100:140] = 50
    file = write_dicom(tmp_path / "scan.dcm", pixels, Modality="NM")
    output = prepared_flow(file, tmp_path, capfd)
    records = list(read_records(tmp_path / "scan/dataset", "test"))
    assert [record.task for record in records] == ["vqa", "grounding", "grounded_vqa"]
    assert {record.benchmark for record in records} == {"scintiground"}
    assert [record.strata for record in records] == [
        {"stand_in": "POST is ANT mirrored", "region": region, "view_scope": scope, "region_level": level}
        for region, scope, level in (
            ("whole_body", "BOTH", "whole_body"),
            ("left knee", "BOTH", "bone_region"),
            ("left knee", "ANT", "bone_region"),
        )
    ]
    ant, post = (np.asarray(Image.open(tmp_path / f"scan/P001-{view}.png")) for view in ("ANT", "POST"))
    assert np.array_equal(ant[:, ::-1], post)
    assert "stand-in" in output
    words = [NAME, "Muster", INSTITUTION, PATIENT_ID, UID]
    assert not leaked(tmp_path / "scan", [word.encode() for word in words])
    assert not any(word in output for word in words)
    assert Image.open(tmp_path / "scan/P001-ANT.png").info == {}


@pytest.mark.realdata
def test_real_bone_scan_leaves_its_names_behind(tmp_path, capfd):
    store = pytest.importorskip("data_store", reason="pydicom-data is not installed (extra `realdata`)")
    pytest.importorskip("libjpeg", reason="pylibjpeg-libjpeg is not installed (extra `prep`)")
    file = Path(store.__file__).parent / "data" / "JPEG-LL.dcm"
    output = prepared_flow(file, tmp_path, capfd)
    grey = np.asarray(Image.open(tmp_path / "scan/P001-ANT.png"))
    counts = pydicom.dcmread(file).pixel_array.astype(float)
    assert grey.shape == (1024, 256)
    assert np.array_equal(grey, np.floor(255 * np.clip(counts / np.percentile(counts, 99.7), 0, 1) ** 0.6 + 0.5))
    words = identifying_words(pydicom.dcmread(file))
    assert len(words) >= 3
    assert not leaked(tmp_path / "scan", [word.encode() for word in words])
    assert not any(word in output for word in words)


def identifying_words(header):
    """Values of names, identifiers and institutions, of private text tags too."""
    words = set()
    for element in header.iterall():
        identifying = element.VR in ("PN", "UI") or "Institution" in element.name or element.tag == 0x00100020
        if identifying or (element.tag.is_private and element.VR in ("LO", "SH", "LT", "ST")):
            words |= {part for part in str(element.value).split("^") if len(part) >= 5}
    return words


@settings(max_examples=120, deadline=None)
@given(
    cut=st.floats(0.3, 1), edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8)
)
def test_damaged_files_give_frames_or_a_data_error(tmp_path_factory, cut, edits):
    path = tmp_path_factory.getbasetemp() / "damaged.dcm"
    write_dicom(path, PIXELS, WindowCenter=4, WindowWidth=9, RescaleSlope=2, RescaleIntercept=1)
    data = bytearray(path.read_bytes())
    data = data[: int(len(data) * cut)]
    for place, value in edits:
        data[128 + int((len(data) - 128) * place)] = value
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        read_frames(path, None, where="")
