import subprocess
import sys
from collections import Counter

import pytest
from PIL import Image

from benchmarks.__main__ import main
from benchmarks.dataset import read_records, records_path
from benchmarks.draw import PREDICTED_COLOUR, TARGET_COLOUR, draw_record
from benchmarks.errors import DataError
from benchmarks.phantom_presets import PRESETS, configure
from benchmarks.predictions import Prediction, encode_prediction
from benchmarks.registry import TABLE
from benchmarks.schema import Answer, Box
from benchmarks.sgmri import PUBLISHED_COUNTS
from benchmarks.stats import PUBLISHED_LABELS, PUBLISHED_ROWS, count, report
from recipes.errors import UserError, run_command
from tests.benchmarks.cases import prepared, write_release
from tests.benchmarks.sgmri_tree import write_tree

GROUNDING = "wbbs:pair:13:left_knee:grounding:both"


def test_prepare_validate_and_stats_print_results_and_the_next_command(tmp_path, capsys):
    release, out = write_release(tmp_path / "release"), tmp_path / "dataset"
    assert main(["prepare", "scintiground", str(release), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "train: 2 records (grounded_vqa 1, vqa 1)" in printed
    assert f"next: python -m benchmarks stats {out}" in printed
    assert main(["validate", str(out)]) == 0
    assert "5 records and their images are in order" in capsys.readouterr().out
    assert main(["stats", str(out)]) == 0
    assert "next: python -m recipes plan" in capsys.readouterr().out


def test_validate_exits_1_and_lists_the_faults(tmp_path, capsys):
    folder = prepared(tmp_path)
    path = records_path(folder, "test")
    path.write_bytes(path.read_bytes().replace(b"90.0", b"900.0"))
    assert main(["validate", str(folder)]) == 1
    printed = capsys.readouterr().out
    assert printed.count("lies outside the 64x128 image") == 2
    assert printed.endswith("3 faults\n")


def test_faulty_release_ends_with_status_2_and_no_traceback(tmp_path, capsys):
    def change(rows, evidence):
        rows[0]["label"] = ""

    release = write_release(tmp_path / "release", change)
    assert run_command(lambda: main(["prepare", "scintiground", str(release), "--out", str(tmp_path / "d")])) == 2
    err = capsys.readouterr().err
    assert "label is empty" in err
    assert "multitask.jsonl row 1" in err
    assert "Traceback" not in err


def test_ls_says_where_licensed_files_come_from_and_go(capsys):
    assert main(["ls"]) == 0
    printed = capsys.readouterr().out
    for entry in TABLE:
        assert entry.name in printed
    assert "BS-80K" in printed
    assert "bs80k/wholeBodyANT" in printed


def test_unknown_arguments_are_refused(capsys):
    with pytest.raises(SystemExit):
        main(["stats", "data", "train=5"])
    assert "unknown arguments: train=5" in capsys.readouterr().err


def test_phantom_release_goes_through_the_same_reader(tmp_path):
    arguments = ["--preset", "demo", "train=3", "val=1", "test=1", "lesion_share=0.5"]
    assert main(["phantom", str(tmp_path / "release"), *arguments]) == 0
    assert main(["prepare", "scintiground", str(tmp_path / "release"), "--out", str(tmp_path / "dataset")]) == 0
    assert main(["validate", str(tmp_path / "dataset")]) == 0
    groups = {record.group for record in read_records(tmp_path / "dataset", "train")}
    assert len(groups) == 3


def test_phantom_settings_are_typed_and_checked():
    assert configure("demo", ["train=7", "abnormal_share=0.25"]).train == 7
    assert configure("full") == PRESETS["full"]
    with pytest.raises(DataError) as caught:
        configure("demo", ["trian=7", "val=-1", "layout=round"])
    for word in ("did you mean train=?", "val=-1 is less than 0", "layout=round is not one of standard"):
        assert word in caught.value.message
    with pytest.raises(DataError, match="unknown preset"):
        configure("huge")
    with pytest.raises(DataError, match=r"\$\.train"):
        configure("demo", ["train=many"])


def colours(picture):
    return Counter(picture.convert("RGB").get_flattened_data())


def test_show_draws_target_and_prediction_in_two_colours(tmp_path, capsys):
    folder = prepared(tmp_path)
    predictions = tmp_path / "predictions"
    predictions.mkdir()
    answer = Answer(boxes=(Box(image=0, xyxy=(5, 5, 20, 20)), Box(image=0, xyxy=(-50, -50, 500, 500))))
    rows = [Prediction(id="other", error="x"), Prediction(id=GROUNDING, text="{}", answer=answer)]
    (predictions / "predictions.jsonl").write_bytes(b"".join(encode_prediction(row) + b"\n" for row in rows))
    out = tmp_path / "a.png"
    assert main(["show", str(folder), GROUNDING, "--out", str(out), "--predictions", str(predictions)]) == 0
    found = colours(Image.open(out))
    assert found[TARGET_COLOUR] > 100
    assert found[PREDICTED_COLOUR] > 100
    printed = capsys.readouterr().out
    assert "Q: Mark it." in printed
    assert f"drawn: {out}" in printed


def test_show_without_predictions_names_the_file_after_the_record(tmp_path, capsys, monkeypatch):
    folder = prepared(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["show", str(folder), GROUNDING]) == 0
    assert PREDICTED_COLOUR not in colours(Image.open("wbbs_pair_13_left_knee_grounding_both.png"))


def test_show_draws_the_canvas_with_its_boxes(tmp_path, capsys):
    folder, out = prepared(tmp_path), tmp_path / "canvas.png"
    words = ["--canvas", "scintiground/paligemma_3b_224_paper", "canvas.resize=pad"]
    assert main(["show", str(folder), GROUNDING, "--out", str(out), *words]) == 0
    assert colours(Image.open(out))[TARGET_COLOUR] > 100
    assert "resized to 224x224; location numbers lose at most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["wbbs:pair:13:left_knee:grounding:bot"], f"did you mean {GROUNDING}"),
        ([GROUNDING, "--out", "a.jpg"], "is not a .png file"),
        ([GROUNDING, "--predictions", "nowhere"], "nowhere/predictions.jsonl is missing"),
        ([GROUNDING, "--canvas", "size=224"], "no recipe 'size=224'"),
        ([GROUNDING, "--canvas", "demo/lora"], "the recipe has no canvas: its model takes each image by itself"),
        (
            [GROUNDING, "--canvas", "demo/paligemma_lora", "canvas.gaps=1"],
            "canvas.gaps: unknown key; the nearest is gap",
        ),
        ([GROUNDING, "--canvas", "demo/paligemma_lora", "canvas.order=[LAT]"], "has the view 'ANT'"),
    ],
)
def test_show_refuses_what_it_cannot_find(tmp_path, arguments, message):
    with pytest.raises(UserError) as caught:
        main(["show", str(prepared(tmp_path)), *arguments])
    assert message in str(caught.value)


def test_drawing_keeps_all_views_side_by_side_at_one_scale():
    images = [Image.new("RGB", (64, 128), colour) for colour in ((200, 0, 0), (0, 0, 200))]
    drawn = draw_record(images, [Box(image=1, xyxy=(0, 0, 64, 128), label="left\nknee")], titles=["ANT", "POST"])
    found = colours(drawn)
    # 128 rows are scaled to 512, so 64 x 128 pixels cover 256 x 512.
    assert found[200, 0, 0] == 256 * 512
    assert found[0, 0, 200] > 256 * 512 * 0.95
    assert found[TARGET_COLOUR] >= 2 * 2 * (256 + 512) - 16
    with pytest.raises(ValueError, match="without images"):
        draw_record([])


@pytest.mark.parametrize("size", [(4000, 1), (1, 3000), (3000, 2000)])
def test_drawing_odd_sizes_stays_within_bounds(size):
    drawn = draw_record(
        [Image.new("RGB", size)], [Box(image=0, xyxy=(0, 0, *size), label="x" * 500)], caption=["y" * 900]
    )
    assert drawn.width <= 2100
    assert drawn.height <= 2100


@pytest.mark.parametrize("count", [1, 4, 5, 24, 25, 60])
def test_drawing_a_volume_shows_every_slice_with_a_box(count):
    slices = [Image.new("RGB", (32, 32), (0, 0, 200)) for _ in range(count)]
    boxed = [0, count - 1, count // 2]
    for number in boxed:
        slices[number] = Image.new("RGB", (32, 32), (200, 0, 0))
    found = colours(draw_record(slices, [Box(image=number, xyxy=(2, 2, 30, 30)) for number in boxed]))
    whole = colours(draw_record(slices))
    shown, side = min(count, 24), 512 if count <= 4 else 320
    frame = 4 * round(28 / 32 * side) * 2
    assert found[TARGET_COLOUR] == pytest.approx(len(set(boxed)) * frame, rel=0.02)
    inside = found[200, 0, 0] + found[TARGET_COLOUR]
    assert inside == pytest.approx(len(set(boxed)) * side**2, rel=0.01)
    assert whole[200, 0, 0] + whole[0, 0, 200] == shown * side**2


def test_show_says_on_which_frame_a_box_lies(tmp_path, capsys):
    release = write_tree(tmp_path / "release")
    assert main(["prepare", "sgmri", str(release), "--out", str(tmp_path / "data")]) == 0
    record = next(read_records(tmp_path / "data", "test"))
    capsys.readouterr()
    assert main(["show", str(tmp_path / "data"), record.id, "--out", str(tmp_path / "drawn.png")]) == 0
    assert "Edema on frame 2: 80, 70, 89, 78" in capsys.readouterr().out


def test_stats_compare_volumes_with_the_papers_table(tmp_path):
    release = write_tree(tmp_path / "release")
    assert main(["prepare", "sgmri", str(release), "--out", str(tmp_path / "data")]) == 0
    lines = report(tmp_path / "data")
    assert "volumes of test: 1 with 4 slices, 4 to 4, median 4" in lines
    assert sum("differs by" in line for line in lines) == len(PUBLISHED_COUNTS) + 1
    assert any(line.split()[:5] == ["knee", "image", "test", "1", "3,750"] for line in lines)
    assert sum(PUBLISHED_COUNTS.values()) == 41_307


def test_stats_mark_every_difference_from_the_published_counts(tmp_path):
    lines = report(prepared(tmp_path))
    assert any(line.split() == ["test", "grounding", "-", "BOTH", "1"] for line in lines)
    assert any(line.split() == ["train", "all", "-", "-", "2"] for line in lines)
    assert "groups: train 1, val 1, test 1" in lines
    assert sum("differs by" in line for line in lines) == len(PUBLISHED_ROWS) + len(PUBLISHED_LABELS)
    assert any(line.split()[:6] == ["test", "vqa", "yes", "0", "141", "differs"] for line in lines)


def test_published_counts_add_up():
    assert sum(PUBLISHED_ROWS.values()) == 38469
    for task in ("vqa", "grounded_vqa"):
        assert sum(n for (_, t, _), n in PUBLISHED_LABELS.items() if t == task) == PUBLISHED_ROWS["test", task]


def test_counts_agree_with_the_records(tmp_path):
    folder = prepared(tmp_path)
    assert sum(count(read_records(folder, "train")).values()) == 2


def test_module_runs_as_a_command():
    done = subprocess.run([sys.executable, "-m", "benchmarks", "--help"], capture_output=True, text=True, check=True)
    assert "prepare" in done.stdout
