"""`python -m infer`: help, every refusal with its message, one question with images, export and import."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image as PILImage

from benchmarks.dataset import image_root, read_records
from benchmarks.predictions import read_predictions
from infer.__main__ import main
from recipes.errors import run_command


@pytest.fixture
def command(monkeypatch, capsys, tmp_path):
    """Runs the command line in an empty folder; returns status and what it printed."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["infer", *map(str, arguments)])
        status = run_command(main)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return run


@pytest.fixture
def scans(phantom_data, tmp_path):
    """The two views of a test patient as image files."""
    record = next(record for record in read_records(phantom_data, "test") if len(record.images) == 2)
    return [image_root(phantom_data) / image.path for image in record.images]


HELP_WITHOUT_TORCH = """
import runpy, sys
sys.argv = ["infer", *sys.argv[1:]]
try:
    runpy.run_module("infer", run_name="__main__")
except SystemExit as end:
    heavy = [name for name in ("torch", "transformers", "numpy", "PIL") if name in sys.modules]
    sys.exit(f"imported {heavy}" if heavy else end.code)
"""


@pytest.mark.parametrize("words", [["--help"], ["export", "--help"], ["import", "--help"]], ids=lambda words: words[0])
def test_help_imports_nothing_heavy(words):
    result = subprocess.run([sys.executable, "-c", HELP_WITHOUT_TORCH, *words], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert "usage: python -m infer" in result.stdout


def test_a_split_is_predicted_and_the_next_command_named(command, model_run, phantom_data):
    status, out, _ = command(model_run, "--data", phantom_data, "--limit", 2, "decoding.max_new_tokens=3")
    assert status == 0
    folder = "runs/predictions/whole-data-test"
    assert out.splitlines()[-2:] == [
        f"predictions: {folder}",
        f"next: python -m eval {folder} --html report.html",
    ]
    assert len(read_predictions(Path(folder))) == 2


def test_the_model_folder_of_a_run_is_named_after_the_run(command, model_run, phantom_data):
    _, out, _ = command(model_run / "model", "--data", phantom_data, "--limit", 1, "--control", "blank_image")
    assert "predictions: runs/predictions/whole-blank_image-data-test" in out


def test_a_control_export_and_import_chain(command, phantom_data):
    assert command("--control", "majority", "--data", phantom_data, "--out", "majority")[0] == 0
    status, out, _ = command("export", "majority", "--out", "official.jsonl")
    assert status == 0
    count = len(read_predictions(Path("majority")))
    assert f"{count} predictions: official.jsonl" in out
    assert "next: " in out
    status, out, _ = command(
        "import", "official.jsonl", "--data", phantom_data, "--name", "theirs", "--out", "imported"
    )
    assert status == 0
    assert "next: python -m eval imported" in out
    rows = [(row.id, row.text, row.answer) for row in read_predictions(Path("imported"))]
    assert rows == [(row.id, row.text, row.answer) for row in read_predictions(Path("majority"))]


# One question.


def test_one_question_draws_a_picture(command, model_run, scans, tmp_path):
    images = [word for path in scans for word in ("--image", path)]
    status, out, _ = command(model_run, *images, "--question", "Is the head hot?", "--draw", "shown.png")
    assert status == 0
    assert "views: ANT, POST (guessed" in out
    assert out.splitlines()[-1] == "picture: shown.png"
    assert "not a valid answer: truncated: " in out
    with PILImage.open(tmp_path / "shown.png") as picture:
        assert min(picture.size) >= 420


def test_one_question_is_answered_as_the_same_record_of_a_dataset(model_run, phantom_data, scans):
    from infer.ask import ask
    from infer.load import load_system
    from tests.collators.samples import folder_images

    system = load_system(str(model_run), recipe_path=None, overrides=())
    record = next(record for record in read_records(phantom_data, "test") if len(record.images) == 2)
    (expected,) = system.engine(folder_images(phantom_data)).generate([record])
    row, _ = ask(system, scans, record.question, task=record.task, views=["ANT", "POST"])
    assert (row.text, row.tokens.prompt) == (expected.text, expected.prompt_tokens)


def test_no_view_is_guessed_for_a_codec_that_names_none(command, model_run, scans):
    images = [word for path in scans for word in ("--image", path)]
    words = (*images, "--question", "Is the head hot?", "codec=plain", "prompt.template=plain")
    status, out, error = command(model_run, *words, "--allow-encoder-mismatch")
    assert status == 0, error
    assert "guessed" not in out
    # One image without a view is fine then, too.
    assert command(model_run, *words[2:], "--allow-encoder-mismatch")[0] == 0


@pytest.fixture(scope="module")
def canvas_run(make_paligemma_recipe, tmp_path_factory):
    """A run with an adapter on a tiny PaliGemma."""
    from tests.adapters import write_adapter_run

    return write_adapter_run(tmp_path_factory.mktemp("canvas") / "canvas", make_paligemma_recipe())


def test_views_of_a_canvas_are_guessed_in_its_order(command, canvas_run, scans):
    images = [word for path in scans for word in ("--image", path)]
    question = ("--question", "Is the head hot?", "--task", "vqa")
    status, out, error = command(canvas_run, *images, *question)
    assert status == 0, error
    assert "views: ANT, POST (guessed" in out
    status, _, error = command(canvas_run, *images[:2], *question)
    assert status == 2
    assert "the canvas of this recipe needs the view of each image" in error
    assert command(canvas_run, *images[:2], "--view", "POST", *question)[0] == 0


def test_a_given_view_is_not_guessed(command, model_run, scans):
    status, out, _ = command(model_run, "--image", scans[1], "--view", "POST", "--question", "Is the head hot?")
    assert status == 0
    assert "guessed" not in out


def test_predicted_boxes_are_drawn_on_their_view(model_run, scans, monkeypatch):
    from benchmarks.draw import PREDICTED_COLOUR
    from infer.ask import ask
    from infer.engines.base import Generated
    from infer.engines.shared_prefix import SharedPrefixEngine
    from infer.load import load_system

    text = '{"task":"grounding","region":"head","boxes":[{"view":"PST","bbox":[10,20,40,60]}]}'
    monkeypatch.setattr(SharedPrefixEngine, "generate", lambda self, records: [Generated(text=text, finish="stop")])
    system = load_system(str(model_run), recipe_path=None, overrides=())
    row, picture = ask(system, scans, "Where is the head?", task="grounding", views=["ANT", "POST"])
    assert row.answer.boxes[0].image == 1
    # Two views of 64 x 128 pixels side by side, drawn four times as large: the frame is in the right one.
    columns = [x for x in range(picture.width) for y in range(200) if picture.getpixel((x, y)) == PREDICTED_COLOUR]
    assert columns
    assert min(columns) > 256


def test_slices_are_numbered_in_their_order_for_a_codec_with_frames(command, model_run, scans):
    images = [word for path in scans for word in ("--image", path)]
    words = (
        *images,
        "--question",
        "Where?",
        "--task",
        "volume_localization",
        "codec=sgmri_text",
        "prompt.template=sgmri",
    )
    status, out, error = command(model_run, *words, "--allow-encoder-mismatch")
    assert status == 0, error
    assert "frames: 1 to 2 in the order of --image" in out
    status, out, _ = command(model_run, *words, "--frame", "7", "--frame", "8", "--allow-encoder-mismatch")
    assert status == 0
    assert "frames: " not in out


# What is refused.


# Words in capitals stand for places.
CASES = {
    "no data": (["MODEL"], "--data is missing"),
    "a slice 0": (
        ["MODEL", "--image", "SCAN", "--frame", "0", "--question", "Hot?"],
        "slices are numbered from 1",
    ),
    "no data but a question": (["MODEL", "--question", "Hot?"], "--data is missing"),
    "no weights": (["--data", "DATA"], "no weights given"),
    "image control without weights": (["--data", "DATA", "--control", "blank_image"], "no weights given"),
    "prior with weights": (["MODEL", "--data", "DATA", "--control", "majority"], "control majority uses no weights"),
    "limit of nothing": (["MODEL", "--data", "DATA", "--limit", "0"], "--limit 0 is not positive"),
    "unknown folder": (["./none", "--data", "DATA"], "./none is not a folder with weights"),
    "unknown name": (["runs/none", "--data", "DATA"], "there is no folder runs/none"),
    "unfinished run": (["EMPTY", "--data", "DATA"], "holds neither adapter_config.json nor config.json"),
    "bare weights": (["TINY", "--data", "DATA"], "no recipe beside"),
    "unknown recipe": (["TINY", "--data", "DATA", "--recipe", "demo/lore"], "no recipe 'demo/lore'"),
    "unknown key": (["MODEL", "--data", "DATA", "decoding.batchsize=4"], "the nearest is batch_size"),
    "word that is no run": (["MODEL", "--data", "DATA", "4"], "there is no folder 4"),
    "one name for two runs": (
        ["MODEL", "MODEL", "--data", "DATA", "--name", "x"],
        "--name x cannot name 2 runs",
    ),
    "a run twice": (["MODEL", "MODEL", "--data", "DATA"], "are both named whole-data-test"),
    "a run twice in one folder": (["MODEL", "MODEL", "--data", "DATA", "--out", "o"], "are both named whole:"),
    "a question to two runs": (
        ["MODEL", "TINY", "--image", "SCAN", "--question", "Hot?"],
        "one question goes to one run, not to 2",
    ),
    "other encoder": (["MODEL", "--data", "DATA", "images.max_pixels=50176"], "max_pixels: 1003520 -> 50176"),
    "no dataset": (["MODEL", "--data", "EMPTY"], "is not a prepared dataset"),
    "no such split": (["MODEL", "--data", "NO_VAL", "--split", "val"], "has no split 'val'"),
    "foreign folder": (["MODEL", "--data", "DATA", "--out", "EMPTY/.."], "is not empty and not a prediction folder"),
    "missing image": (
        ["MODEL", "--image", "none.png", "--view", "ANT", "--question", "Hot?"],
        "image file none.png does not exist",
    ),
    "not an image": (["MODEL", "--image", "TEXT", "--view", "ANT", "--question", "Hot?"], "cannot be read"),
    "one image without its view": (
        ["MODEL", "--image", "SCAN", "--question", "Hot?"],
        "codec scintiground_json needs the view of each image",
    ),
    "three images without views": (
        ["MODEL", "--image", "SCAN", "--image", "SCAN", "--image", "SCAN", "--question", "Hot?"],
        "guessed for 2 images only, not for 3",
    ),
    "no question": (["MODEL", "--image", "SCAN"], "one question needs weights, --image, --question and a task"),
    "blank question": (["MODEL", "--image", "SCAN", "--question", " "], "one question needs"),
    "blank task": (["MODEL", "--image", "SCAN", "--question", "Hot?", "--task", ""], "one question needs"),
    "unknown task": (
        ["MODEL", "--image", "SCAN", "--view", "ANT", "--question", "Hot?", "--task", "vqaa"],
        "codec scintiground_json has no task 'vqaa'",
    ),
    "question without weights": (["--image", "SCAN", "--question", "Hot?"], "one question needs"),
    "image and data": (["MODEL", "--image", "SCAN", "--question", "Hot?", "--data", "DATA"], "drop one of the two"),
    "image and control": (
        ["MODEL", "--image", "SCAN", "--question", "Hot?", "--control", "blank_image"],
        "drop one of the two",
    ),
    "views for other images": (
        ["MODEL", "--image", "SCAN", "--question", "Hot?", "--view", "ANT", "--view", "POST"],
        "2 views for 1 images",
    ),
    "picture of no kind": (
        ["MODEL", "--image", "SCAN", "--view", "ANT", "--question", "Hot?", "--draw", "picture.xyz"],
        "the picture cannot be written: unknown file extension: .xyz",
    ),
    "picture nowhere": (
        ["MODEL", "--image", "SCAN", "--view", "ANT", "--question", "Hot?", "--draw", "none/a.png"],
        "the picture cannot be written",
    ),
    "export of nothing": (["export", "EMPTY", "--out", "a.jsonl"], "manifest.json is missing"),
    "import of nothing": (
        ["import", "none.jsonl", "--data", "DATA", "--name", "x", "--out", "o"],
        "none.jsonl does not exist",
    ),
    "import of a wrong file": (
        ["import", "TEXT", "--data", "DATA", "--name", "x", "--out", "o"],
        "not a line with task_id and prediction",
    ),
    "import of an empty file": (
        ["import", "EMPTY_FILE", "--data", "DATA", "--name", "x", "--out", "o"],
        "ids of the split are missing and 0 are unknown",
    ),
}


@pytest.mark.parametrize(("words", "message"), CASES.values(), ids=CASES)
def test_a_mistake_is_one_message_with_a_way_out(
    command, model_run, tiny, phantom_data, scans, tmp_path, words, message
):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.png").write_text("not a picture")
    (tmp_path / "empty.jsonl").touch()
    places = {
        "MODEL": model_run,
        "TINY": tiny,
        "DATA": phantom_data,
        "NO_VAL": no_val(phantom_data, tmp_path) if "NO_VAL" in words else "",
        "EMPTY": tmp_path / "empty",
        "EMPTY/..": tmp_path,
        "TEXT": tmp_path / "text.png",
        "EMPTY_FILE": tmp_path / "empty.jsonl",
        "SCAN": scans[0],
    }
    status, out, error = command(*(places.get(word, word) for word in words))
    assert status == 2, error
    assert message in " ".join(error.split())
    assert "do: " in error or "valid keys" in error
    assert "Traceback" not in error
    assert "predictions: " not in out
    assert "picture: " not in out


def no_val(data, tmp_path):
    """The dataset without its validation split."""
    folder = tmp_path / "no-val"
    shutil.copytree(data, folder)
    info = json.loads((folder / "dataset.json").read_text())
    del info["files"]["records-val.jsonl"], info["counts"]["val"]
    (folder / "dataset.json").write_text(json.dumps(info))
    return folder


@pytest.mark.parametrize("words", [["--split", "dev"], ["--control", "nothing"], ["--limit", "few"], ["--nothing"]])
def test_a_wrong_option_ends_with_the_usage(command, words, capsys):
    with pytest.raises(SystemExit) as ended:
        command(*words)
    assert ended.value.code == 2
    assert "usage: python -m infer" in capsys.readouterr().err


def test_an_error_in_a_sample_of_one_question_gives_status_one(command, model_run, tmp_path):
    PILImage.new("L", (4, 900)).save(tmp_path / "thin.png")
    status, out, _ = command(model_run, "--image", tmp_path / "thin.png", "--view", "ANT", "--question", "Hot?")
    assert status == 1
    assert "failed: image image-0 of 4x900 cannot be patched" in out
