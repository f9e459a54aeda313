"""SGMRI-VQA's published profile in `eval`: Tables 3 and 4, from what is exported, beside the paper's rows."""

import itertools
import json
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.predictions import Manifest, Prediction
from benchmarks.sgmri import PUBLISHED_COUNTS, record_task
from collators.codecs.sgmri_official import MODES, inference_path
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.published import get_published
from eval.report import render_report
from eval.report_tables import headline_tables
from eval.run import load_runs
from eval.schema import encode_result, read_result
from eval.sgmri.marks import TextMarks
from eval.sgmri.published_tables import AVERAGE, COLUMNS
from eval.sgmri.scoring import evaluate_inference, paper_row
from infer.exchange import export_predictions
from tests.eval.cases import write_data, write_run
from tests.eval.pages import Page, check_safe
from tests.sgmri_cases import all_tasks, box, predict, record, right

RECORDS = [*all_tasks("brain"), *all_tasks("knee")]
NULL_BOX = '{"bbox_2d": [10, 20, null, 220]}'
JUDGED = TextMarks(judge_reply="9,9,9", judge_reply_on_reference="10,10,10", bertscore_f1=0.5)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write_data(tmp_path_factory.mktemp("sgmri") / "data", RECORDS, benchmark="sgmri")


def made(folder, data, rows, codec="sgmri_text", **fields):
    return write_run(folder, data, rows, codec=codec, **fields)


def places(level):
    return [n for n, asked in enumerate(RECORDS) if asked.task == record_task(level, "localization")]


def with_text(number, text):
    """Right answers but for one text."""
    rows = [right(asked) for asked in RECORDS]
    rows[number] = predict(RECORDS[number], text)
    return rows


def score(folder, **options):
    return evaluate(load_runs([folder]), resamples=100, **options)


texts = st.sampled_from(
    ["Yes", "No", "(B)", "A and C", "2 findings", "Frame 5: <bbx>[90,50,30,20]</bbx>", "[40,50,30,20]"]
)


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_the_rows_of_tables_3_and_4_are_those_of_the_exported_files(tmp_path_factory, data, drawn):
    codec = drawn.draw(st.sampled_from(["sgmri_text", "sgmri_json", "plain", "sgmri_answer_first"]))
    rows = [
        drawn.draw(
            st.sampled_from([right(r, codec), predict(r, drawn.draw(texts), codec), Prediction(id=r.id, error="x")])
        )
        for r in RECORDS
    ]
    marks = {r.id: JUDGED for r in RECORDS if drawn.draw(st.booleans())}
    folder = tmp_path_factory.mktemp("run")
    made(folder / "run", data, rows, codec)
    (run,) = load_runs([folder / "run"])
    (system,) = evaluate([run], profiles=["published"], marks={"run": marks}).systems
    export_predictions(folder / "run", data, folder / "out")
    for level, mode in MODES.items():
        file = folder / "out" / inference_path(run.manifest, level)
        evaluation = evaluate_inference(json.loads(file.read_bytes()), mode, marks)
        block = system.published.report[level]
        for name, percent in paper_row(evaluation, mode).items():
            assert block[name] == (None if percent is None else pytest.approx(percent / 100, abs=1e-12))
        assert {name: block[name] for name in ("total_samples", "aggregates", "breakdowns")} == {
            name: evaluation[name] for name in ("total_samples", "aggregates", "breakdowns")
        }
        for task, means in evaluation["breakdowns"]["task"].items():
            assert system.published.report[record_task(level, task)] == means


def test_right_answers_have_full_a_and_v_scores_and_the_average_counts_localization_twice(tmp_path, data):
    (system,) = score(made(tmp_path / "run", data, [right(asked) for asked in RECORDS])).systems
    for level, mode in MODES.items():
        block = system.published.report[level]
        assert {block[name] for name in COLUMNS[mode] if not name.endswith("ar_score")} == {1.0}
        assert block[AVERAGE] == pytest.approx(sum(block[name] for name in COLUMNS[mode]) / 6, abs=1e-4)
        assert sum(name.startswith("localization") for name in COLUMNS[mode]) == 2
    assert system.published.stops == []


@pytest.mark.parametrize("profiles", [["published"], ["corrected"], ["published", "corrected"]])
def test_profiles_are_what_was_asked(tmp_path, data, profiles):
    result = score(made(tmp_path / "run", data, [right(asked) for asked in RECORDS]), profiles=profiles)
    assert result.profiles == profiles
    assert (result.systems[0].published is not None) == ("published" in profiles)
    assert bool(result.systems[0].rows) == ("corrected" in profiles)
    assert [table.profile for table in headline_tables(result)].count("published") == 2 * ("published" in profiles)
    assert any("AR-Scores of" in note for note in result.notes) == ("published" in profiles)


@pytest.mark.parametrize(("level", "other"), [("image", "volume"), ("volume", "image")])
def test_a_null_coordinate_costs_its_level_and_only_that(tmp_path, data, capsys, level, other):
    number = places(level)[1]
    folder = made(tmp_path / "run", data, with_text(number, NULL_BOX))
    assert main([str(folder), "--resamples", "100", "--html", str(tmp_path / "r.html")]) == 0
    out = capsys.readouterr().out
    assert f"run: published: stops with TypeError at {RECORDS[number].id} ({level} level)" in out
    assert "CORRECTED profile" in out
    result = score(folder)
    report = result.systems[0].published
    assert [(stop.exception, stop.id, stop.part) for stop in report.stops] == [("TypeError", RECORDS[number].id, level)]
    assert not any(part.startswith(level) for part in report.report)
    assert report.report[other]["total_samples"] == 12 if other == "image" else 10
    lost, kept = sorted((t for t in headline_tables(result) if t.heads), key=lambda t: level not in t.title)
    assert lost.rows[0].note == f"the published scorer stops with TypeError at {RECORDS[number].id}"
    assert (lost.rows[0].cells, len(kept.rows[0].cells)) == ((), 7)
    page = Page((tmp_path / "r.html").read_text())
    assert f"stops with TypeError at {RECORDS[number].id} ({level} level)." in page.text
    check_safe(page)


def test_both_levels_may_stop_each_at_its_own_record(tmp_path, data):
    first, second = places("image")[0], places("volume")[1]
    rows = with_text(first, NULL_BOX)
    rows[second] = predict(RECORDS[second], NULL_BOX)
    result = score(made(tmp_path / "run", data, rows))
    published = result.systems[0].published
    assert published.report is None
    assert [(stop.part, stop.id) for stop in published.stops] == [
        ("image", RECORDS[first].id),
        ("volume", RECORDS[second].id),
    ]
    notes = [table.rows[0].note for table in headline_tables(result) if table.heads]
    assert [note.split()[-1] for note in notes] == [RECORDS[first].id, RECORDS[second].id]


def test_the_terminal_shows_the_papers_columns_in_percent_and_marks_what_was_not_run_here(tmp_path, data, capsys):
    folder = made(tmp_path / "run", data, with_text(0, "No"))
    assert main([str(folder), "--profile", "published"]) == 0
    lines = capsys.readouterr().out.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("Table 3 (image level)"))
    assert lines[head].split("  ")[-1].strip() == "Avg."
    assert [word for word in lines[head].split() if word in ("A", "V", "AR")] == ["A", "A", "A", "V", "AR", "AR"]
    run, gpt = lines[head + 2], lines[head + 3]
    assert run.split()[:4] == ["run", "[a]", "75.00", "100.00"]
    assert gpt.startswith("GPT-4o [published, not run here, other data]")
    assert gpt.split()[-7:] == ["50.74", "52.49", "44.71", "3.41", "26.22", "16.90", "32.41"]
    assert "  percent; Avg. is the mean of the six columns, localization counted twice" in lines
    tuned = [line for line in lines if line.startswith("Qwen3-VL-8B-SGMRIVQA (fine-tuned)")]
    assert [line.split()[-1] for line in tuned] == ["59.45", "49.23"]
    assert any("other data than scored here" in line for line in lines)


def test_the_page_shows_both_tables_beside_the_papers_rows(tmp_path, data):
    runs = load_runs(
        [made(tmp_path / "run", data, with_text(0, "No")), made(tmp_path / "two", data, with_text(1, "Yes"))]
    )
    result = evaluate(runs, resamples=100)
    table_3, table_4 = headline_tables(result)[-2:]
    assert (table_3.title, table_4.title) == ("Table 3 (image level)", "Table 4 (volume level)")
    assert [column.head for column in table_4.heads][:2] == ["detection A", "counting A"]
    assert table_3.columns == (*COLUMNS["image"], AVERAGE)
    assert [row.kind for row in table_4.rows] == ["system"] * 2 + ["published"] * 9
    assert [row.kind for row in table_3.rows] == ["system"] * 2 + ["published"] * 11
    assert not any(cell.best for row in table_3.rows[2:] for cell in row.cells)
    page = Page(render_report(result, runs))
    check_safe(page)
    for words in (
        "Table 3 (image level)",
        "localization counted twice",
        "Published, not run here, other data",
        "50.74",
    ):
        assert words in page.text
    assert "detection/a_score" not in page.text


def test_scores_of_one_level_fill_one_table(tmp_path):
    asked = [r for r in RECORDS if r.task.startswith("volume")]
    data = write_data(tmp_path / "data", asked, benchmark="sgmri")
    result = score(made(tmp_path / "run", data, [right(r) for r in asked]))
    assert [table.title for table in headline_tables(result) if table.heads] == ["Table 4 (volume level)"]


def test_marks_reach_the_scorer_and_only_missing_ones_are_noted(tmp_path, data):
    folder = made(tmp_path / "run", data, with_text(5, "A mass on the left."))
    alone, judged = score(folder), score(folder, marks={"run": {r.id: JUDGED for r in RECORDS}})
    name = "captioning/ar_score"
    assert judged.systems[0].published.report["image"][name] != alone.systems[0].published.report["image"][name]
    assert "AR-Scores of run: 0 of 8 answers have a judge's marks and 0 a BERTScore" in " ".join(alone.notes)
    assert "AR-Scores" not in " ".join(judged.notes)
    elsewhere = score(folder, marks={"another run": {r.id: JUDGED for r in RECORDS}})
    assert elsewhere.systems == alone.systems


def test_failed_calls_are_scored_as_answers_and_that_is_said(tmp_path, data):
    rows = [right(asked) for asked in RECORDS]
    asked = RECORDS[1]
    assert asked.target.text == "No"
    rows[1] = Prediction(id=asked.id, error="No images found")
    result = score(made(tmp_path / "run", data, rows))
    assert result.systems[0].published.report["image"]["detection/a_score"] == 1.0
    assert "the published scorer scores the text [ERROR: ...] as an answer" in result.notes[0]


def test_the_result_comes_back_from_json(tmp_path, data):
    result = score(made(tmp_path / "run", data, with_text(places("image")[0], NULL_BOX)))
    (tmp_path / "r.json").write_bytes(encode_result(result))
    assert encode_result(read_result(tmp_path / "r.json")) == encode_result(result)


def official(change=0, **fields):
    """A run of as many records as the paper's test split; `change` more of one kind."""
    counts = {key: count for key, count in PUBLISHED_COUNTS.items() if key[2] == "test"}
    first = next(iter(counts))
    counts[first] += change
    records = []
    for (organ, level, _), count in counts.items():
        records += itertools.repeat(record(organ, level, "detection", "Yes"), count)
    values = {"name": "m", "dataset": "d", "dataset_hash": "h", "split": "test", "records": 1, "engine": "hf"}
    manifest = Manifest(**{**values, "codec": "plain", **fields})
    return types.SimpleNamespace(records=records, manifest=manifest)


def test_the_official_test_split_is_known_by_its_counts():
    published = get_published("sgmri")
    assert published.is_official(official())
    assert not published.is_official(official(change=1))
    assert not published.is_official(official(split="train"))
    assert not published.is_official(official(limit=9293))


def test_published_rows_are_fractions_of_both_tables():
    rows = {(row.task, row.system): row for row in get_published("sgmri").rows()}
    assert len(rows) == 20
    assert rows["image", "GPT-4o"].values["detection/a_score"] == 0.5074
    assert rows["volume", "Gemini-2.5-Pro"].values["average"] == 0.1229
    assert all(0 <= value <= 1 for row in rows.values() for value in row.values.values())
    assert {row.note for row in rows.values()} == {"published, not run here; official test split"}


def test_other_benchmarks_have_none():
    assert get_published("generic") is None


def test_a_truth_box_on_a_slice_has_no_frame_to_miss(tmp_path):
    # The published scorer takes a prediction without a frame to lie on frame 1; the slice here is number 3.
    asked = record("knee", "image", "localization", "There.", boxes=(box(0),))
    data = write_data(tmp_path / "data", [asked], benchmark="sgmri")
    rows = [predict(asked, "<bbx>[40,50,30,20]</bbx>")]
    (system,) = score(made(tmp_path / "run", data, rows)).systems
    assert system.published.report["image"]["localization/v_score"] == 1.0
