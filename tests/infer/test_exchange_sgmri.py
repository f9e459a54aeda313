"""SGMRI-VQA's inference files: out and back in with the same scores, files of others, and what is refused."""

import json
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.errors import DataError
from benchmarks.predictions import PREDICTIONS, Prediction, Tokens, encode_prediction, read_manifest, read_predictions
from collators.codecs.sgmri_official import FAILED
from eval.evaluate import evaluate
from eval.run import load_runs
from infer.__main__ import main
from infer.exchange import export_predictions, import_predictions
from recipes.errors import run_command
from tests.eval.cases import write_data, write_run
from tests.sgmri_cases import all_tasks, box, predict, record, right

RECORDS = [*all_tasks("brain"), *all_tasks("knee")]
IMAGE, VIDEO = "image_level/inference/run_image_inference.json", "video_level/inference/run_video_inference.json"
ODD = [
    "\u2028",
    "\x85",
    "\r",
    "\n",
    '"',
    "\\",
    "<|box_start|>(10,20),(30,40)<|box_end|>",
    "<think>",
    "\ufffd",
    "骨",
    "{",
]
texts = st.lists(
    st.sampled_from([*ODD, "[ERROR: ", "]", "Frame 3: <bbx>[1,2,3,4]</bbx>", "Yes", "No", "(A)"])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=3),
    max_size=6,
).map("".join)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("sgmri") / "data", RECORDS, benchmark="sgmri")


def made(folder, data, rows, codec="sgmri_text", **fields):
    """A finished prediction folder of these rows."""
    return write_run(folder, data, rows, codec=codec, name="run", **fields)


def there_and_back(folder, data, codec):
    export_predictions(folder, data, folder.parent / "official")
    out = folder.parent / "back"
    return import_predictions(folder.parent / "official", data, "test", out, name="run", codec=codec).folder


def scores(folder):
    """Everything that either profile says."""
    (system,) = evaluate(load_runs([folder]), resamples=100).systems
    parts = ("published", "metrics", "strata", "invalid", "confusions", "histograms", "errors", "rows")
    return {part: getattr(system, part) for part in parts}


def mixed(codec):
    """Right and wrong answers, a cut one, an unreadable one, and a failed call."""
    rows = [right(asked, codec) for asked in RECORDS]
    rows[3] = right(RECORDS[14], codec)
    rows[3] = msgspec.structs.replace(rows[3], id=RECORDS[3].id)
    rows[4] = predict(RECORDS[4], "It lies at <bbx>[40,50", codec, finish="length", tokens=Tokens(prompt=9, new=4))
    rows[9] = predict(RECORDS[9], "<bbx>[1,2]</bbx>", codec, finish="stop")
    rows[12] = Prediction(id=RECORDS[12].id, error="CUDA out of memory: No images found")
    return rows


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data(), st.sampled_from(["sgmri_text", "sgmri_json", "plain"]))
def test_any_text_comes_back_as_it_went_out(tmp_path_factory, data, drawn, codec):
    rows = []
    for asked in RECORDS:
        text = drawn.draw(texts)
        assume(not FAILED.fullmatch(text))
        tokens = Tokens(prompt=drawn.draw(st.integers(0, 9)), new=2)
        finish = drawn.draw(st.sampled_from(["stop", "length"]))
        row = predict(asked, text, codec, finish=finish, tokens=tokens)
        if finish == "length" and row.invalid is not None:
            row = msgspec.structs.replace(row, invalid=f"truncated: {row.invalid}")
        rows.append(drawn.draw(st.sampled_from([row, Prediction(id=asked.id, error=text)])))
    folder = made(tmp_path_factory.mktemp("exchange") / "run", data, rows, codec)
    assert read_predictions(there_and_back(folder, data, codec)) == rows


@pytest.mark.parametrize("codec", ["sgmri_text", "sgmri_json", "plain"])
def test_both_profiles_score_what_comes_back_as_what_went_out(tmp_path, data, codec):
    folder = made(tmp_path / "run", data, mixed(codec), codec)
    before = scores(folder)
    assert before["published"].report["image"]["total_samples"] == 12
    assert len(before["errors"]) == 1
    assert scores(there_and_back(folder, data, codec)) == before


def test_the_published_profile_is_the_same_for_answers_that_were_written_in_another_form(tmp_path, data):
    folder = made(tmp_path / "run", data, mixed("sgmri_answer_first"), "sgmri_answer_first")
    back = there_and_back(folder, data, "sgmri_text")
    assert scores(back)["published"] == scores(folder)["published"]
    assert [row.text for row in read_predictions(back)] != [row.text for row in read_predictions(folder)]


def test_only_the_levels_that_were_asked_are_written(tmp_path, data):
    folder = made(tmp_path / "run", data, [right(asked) for asked in RECORDS])
    count, files = export_predictions(folder, data, tmp_path / "out")
    assert (count, files) == (len(RECORDS), [tmp_path / "out" / IMAGE, tmp_path / "out" / VIDEO])
    one = made(tmp_path / "one", data, [right(asked) for asked in RECORDS[:6]], limit=6)
    assert export_predictions(one, data, tmp_path / "some") == (6, [tmp_path / "some" / IMAGE])
    assert not (tmp_path / "some" / "video_level").exists()


def test_an_import_says_where_it_comes_from(tmp_path, data):
    folder = made(tmp_path / "run", data, [right(asked) for asked in RECORDS], weights="org/model")
    export_predictions(folder, data, tmp_path / "out")
    done = import_predictions(tmp_path / "out", data, "test", tmp_path / "back", name="theirs")
    manifest = read_manifest(done.folder)
    assert (manifest.name, manifest.engine, manifest.codec, manifest.weights) == (
        "theirs",
        "import",
        "sgmri_text",
        "org/model",
    )
    headers = manifest.environment["official_headers"]
    assert set(headers) == {IMAGE, VIDEO}
    assert all(header["prompt_mode"] == "custom" and "results" not in header for header in headers.values())
    assert done.notes == []


# Files of others.


@pytest.fixture
def official(tmp_path, data):
    """Both files of a right run, as one list of results per level, and a way to write them back and import them."""
    folder = made(tmp_path / "run", data, [right(asked) for asked in RECORDS])
    export_predictions(folder, data, tmp_path / "out")
    return Official(tmp_path, data)


class Official:
    def __init__(self, folder, data):
        self.folder, self.data = folder, data
        self.files = {name: json.loads((folder / "out" / name).read_text()) for name in (IMAGE, VIDEO)}

    @property
    def results(self):
        return [result for file in self.files.values() for result in file["results"]]

    def read(self, source="out", data=None, codec="sgmri_text"):
        for name, content in self.files.items():
            (self.folder / "out" / name).write_text(json.dumps(content))
        data = data or self.data
        return import_predictions(self.folder / source, data, "test", self.folder / "back", name="x", codec=codec)


def test_foreign_ids_are_matched_by_what_was_asked(official):
    for number, result in enumerate(official.results):
        result["sample_id"] = f"sample {number}"
    # Two slices of one volume were asked the same question: only their numbers tell them apart.
    for result in official.files[IMAGE]["results"]:
        if result["task"] == "detection":
            result["slice_num"] = 3 if result["gt_answer"] == "Yes" else 4
    rows = read_predictions(official.read().folder)
    assert [(row.id, row.answer) for row in rows] == [(asked.id, right(asked).answer) for asked in RECORDS]


def test_the_order_of_files_and_results_and_one_file_of_both_levels_make_no_difference(official):
    official.files[IMAGE]["results"] = list(reversed(official.results))
    official.files[VIDEO]["results"] = []
    (official.folder / "out" / VIDEO).unlink()
    del official.files[VIDEO]
    rows = read_predictions(official.read(f"out/{IMAGE}").folder)
    assert [row.id for row in rows] == [asked.id for asked in RECORDS]


def test_extra_grounding_samples_are_left_out_and_counted(official):
    extra = {**official.results[4], "sample_id": "brain_image_ground_1", "question": "Locate the bounding box of it."}
    official.files[IMAGE]["results"] += [extra, extra]
    done = official.read()
    assert done.notes == ["2 extra grounding samples left out: they are no questions of the benchmark, nor scored"]
    assert len(read_predictions(done.folder)) == len(RECORDS)


@pytest.mark.parametrize(
    ("change", "text", "error"),
    [
        ({"model_output": "[ERROR: no key]"}, None, "no key"),
        ({"model_output": "[ERROR: no key]", "error": "401"}, None, "no key"),
        ({"model_output": "half an ans", "error": "timeout"}, "half an ans", "timeout"),
        ({"model_output": "Yes", "error": ""}, "Yes", None),
        ({"model_output": "Yes", "error": None}, "Yes", None),
    ],
)
def test_failed_calls_become_errors_and_their_text_stays_what_the_published_scorer_reads(official, change, text, error):
    official.files[IMAGE]["results"][0].update(change)
    done = official.read()
    row = read_predictions(done.folder)[0]
    assert (row.text, row.error) == (text, error)
    assert (row.answer is None) == (error is not None)
    assert done.notes == (["1 failed calls: their rows hold the error and no answer"] if error else [])
    export_predictions(done.folder, official.data, official.folder / "again")
    again = json.loads((official.folder / "again" / IMAGE.replace("run_", "x_")).read_text())
    assert again["results"][0]["model_output"] == change["model_output"]


def _nothing(official):
    del official.files[IMAGE]["results"][0]
    del official.files[VIDEO]["results"][3:5]


def _unknown(official):
    official.results[0].update(sample_id="nobody", question="Who is this?")
    official.results[1]["sample_id"] = "other"


def _twice(official):
    official.files[VIDEO]["results"].append(official.results[0])


def _twice_by_question(official):
    official.files[VIDEO]["results"].append({**official.results[4], "sample_id": "foreign"})


def _ambiguous(official):
    for result in official.results:
        result["sample_id"] = "none"


FIRST = RECORDS[0].id


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_nothing, f"3 missing: '{FIRST}', '"),
        (_unknown, "1 unknown: 'nobody' ("),
        (_unknown, "1 ambiguous: 'other' ("),
        (_unknown, f"2 missing: '{FIRST}', '{RECORDS[1].id}'"),
        (_twice, f"1 repeated: '{FIRST}' ("),
        (_twice_by_question, "1 repeated: 'foreign' ("),
        (_ambiguous, "4 ambiguous: 'none' ("),
    ],
)
def test_results_that_do_not_answer_each_record_once_are_refused_with_counts(official, change, message):
    change(official)
    with pytest.raises(DataError) as raised:
        official.read()
    assert f"do not answer the {len(RECORDS)} records of the split exactly once each" in raised.value.message
    assert message in raised.value.message
    assert "matched by sample_id, else by volume_id" in raised.value.fix
    assert not (official.folder / "back").exists()


def test_many_offenders_are_counted_and_the_first_are_named(official):
    official.files[VIDEO]["results"] = []
    with pytest.raises(DataError, match=r"10 missing: .* and 5 more"):
        official.read()


def test_offenders_are_named_with_their_place(official):
    _twice(official)
    with pytest.raises(DataError) as raised:
        official.read()
    assert f"{official.folder / 'out' / VIDEO} results[10]" in raised.value.message


@pytest.mark.parametrize(
    ("content", "message", "where"),
    [
        ("{", "not an inference file", "_inference.json"),
        ("[]", "not an inference file", "_inference.json"),
        ("{}", "not an inference file: 'results'", "_inference.json"),
        ('{"results": {}}', "not an inference file", "_inference.json"),
        ('{"results": [3]}', "not a result", "results[0]"),
        (
            '{"results": [{"model_output": "x"}]}',
            "not a result: Object missing required field `sample_id`",
            "results[0]",
        ),
        ('{"results": [{"sample_id": "a", "model_output": null}]}', "not a result", "results[0]"),
        ('{"results": [{"sample_id": "a", "model_output": "\\ud800"}]}', "not an inference file", "_inference.json"),
    ],
)
def test_a_broken_file_is_refused_by_place(tmp_path, data, content, message, where):
    path = tmp_path / "m_inference.json"
    path.write_text(content)
    with pytest.raises(DataError) as raised:
        import_predictions(path, data, "test", tmp_path / "back", name="x")
    assert message in raised.value.message
    assert raised.value.where.endswith(where)
    assert not (tmp_path / "back").exists()


def test_a_folder_has_to_hold_files_of_one_model(official):
    official.files[VIDEO]["model_key"] = "other"
    with pytest.raises(DataError, match="files of 2 models: other, run"):
        official.read()
    (official.folder / "empty").mkdir()
    with pytest.raises(DataError, match=r"no file \*_inference.json in .*empty"):
        official.read("empty")


def test_export_needs_a_folder_and_the_records_need_an_organ(tmp_path, data):
    folder = made(tmp_path / "run", data, [right(asked) for asked in RECORDS])
    (tmp_path / "file").touch()
    with pytest.raises(DataError, match="file is a file"):
        export_predictions(folder, data, tmp_path / "file")
    bare = [msgspec.structs.replace(record("brain", "volume", "captioning", "x", boxes=(box(0),)), strata={})]
    other = write_data(tmp_path / "other", bare, benchmark="sgmri")
    with pytest.raises(DataError, match="organ None"):
        export_predictions(made(tmp_path / "bare", other, [right(bare[0])]), other, tmp_path / "out")


def test_the_command_names_files_notes_and_the_next_step(tmp_path, data, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [right(asked) for asked in RECORDS]
    rows[0] = Prediction(id=rows[0].id, error="gone")
    made(Path("run"), data, rows)

    def command(*words):
        monkeypatch.setattr(sys, "argv", ["infer", *map(str, words)])
        assert run_command(main) == 0
        return capsys.readouterr().out

    out = command("export", "run", "--out", "official")
    assert f"{len(RECORDS)} predictions: official/{IMAGE}, official/{VIDEO}" in out
    out = command("import", "official", "--data", data, "--name", "x", "--out", "back")
    assert "note: 1 failed calls" in out
    assert out.rstrip().endswith("next: python -m eval back")
    assert (Path("back") / PREDICTIONS).read_bytes().count(b"\n") == len(RECORDS)
    assert encode_prediction(read_predictions(Path("back"))[0]) == encode_prediction(rows[0])
