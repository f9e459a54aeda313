"""`python -m eval` from end to end, and what it imports."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.predictions import Prediction
from eval.__main__ import main
from eval.evaluate import evaluate
from eval.run import load_runs
from eval.schema import EvalResult, encode_result, read_result
from eval.scintiground.published_rows import published_rows
from recipes.errors import UserError
from tests.eval.cases import perfect, predict, record, text_for, write_data, write_run

VECTORS = Path(__file__).parents[1] / "vectors" / "scintiground.json"


@pytest.fixture
def records():
    found = []
    for number in range(10):
        group = f"p{number // 2}"
        found.append(record(f"v{number}", "vqa", "yes" if number % 4 == 0 else "no", group=group))
        found.append(record(f"l{number}", "grounding", group=group, views=("ANT", "POST")))
        label = "abnormal" if number % 3 == 0 else "normal"
        found.append(record(f"g{number}", "grounded_vqa", label, group=group, label_conflict="false"))
    return found


@pytest.fixture
def data(tmp_path, records):
    return write_data(tmp_path / "data", records)


@pytest.fixture
def model(tmp_path, data, records):
    rows = [perfect(r) for r in records]
    rows[0] = predict(records[0], "```json\n" + text_for(records[0]) + "\n```")
    return write_run(tmp_path / "model", data, rows)


@pytest.fixture
def majority(tmp_path, data, records):
    rows = [
        predict(
            r, text_for(r, label={"vqa": "no", "grounded_vqa": "normal"}.get(r.task), by_view={"ANT": [0, 0, 9, 9]})
        )
        if r.task != "vqa"
        else predict(r, text_for(r, label="no"))
        for r in records
    ]
    return write_run(tmp_path / "majority", data, rows, control="majority", engine="control", encoder_fingerprint=None)


def run_main(capsys, *arguments):
    status = main([str(a) for a in arguments])
    return status, capsys.readouterr().out


def test_table_holds_systems_published_rows_and_comparison(capsys, model, majority, tmp_path):
    target = tmp_path / "result.json"
    status, out = run_main(capsys, model, majority, "--resamples", 100, "--json", target)
    assert status == 0
    assert "model [a]" in out
    assert "majority (control)" in out
    assert "Qwen3-VL-2B (paper) [published, not run here, other data]" in out
    assert "model - majority" in out
    assert "what corrected changes" in out
    assert "vqa: 10 records: 3 yes, 7 no (majority 70.0%)" in out
    assert f"result: {target}" in out
    assert out.rstrip().splitlines()[-1].startswith("next: python -m eval")
    result = read_result(target)
    assert [system.name for system in result.systems] == ["model", "majority"]
    assert {c.metric for c in result.comparisons if c.task == "grounding"} == {
        "mean_iou",
        "iou_at_0.5",
        "strict",
        "strict_with_region",
        "valid_rate",
    }
    strict = next(c for c in result.comparisons if (c.task, c.metric) == ("grounding", "strict"))
    assert (strict.difference, strict.low, strict.high) == (1.0, 1.0, 1.0)
    assert result.systems[0].rows[0].tolerant_valid


def test_both_profiles_see_the_same_rows(data, model):
    (system,) = evaluate(load_runs([model]), resamples=100).systems
    values = {(m.task, m.metric): m.value for m in system.metrics}
    assert system.published.report["vqa"]["accuracy"] == 0.9 == values["vqa", "accuracy"]
    assert system.published.report["grounding"]["iou_at_0_5"] == 1.0 == values["grounding", "iou_at_0.5"]
    assert system.published.bootstrap["patients"] == 5
    assert len(system.rows) == 30


def test_result_round_trips_through_json(tmp_path, model, majority):
    result = evaluate(load_runs([model, majority]), resamples=100)
    path = tmp_path / "r.json"
    path.write_bytes(encode_result(result))
    assert isinstance(read_result(path), EvalResult)
    assert encode_result(read_result(path)) == encode_result(result)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    with pytest.raises(UserError, match="schema 99"):
        read_result(path)


def test_published_scorer_stops_and_corrected_goes_on(capsys, tmp_path, data, records):
    rows = [perfect(r) for r in records]
    rows[4] = predict(records[4], text_for(records[4], boxes=None))
    folder = write_run(tmp_path / "run", data, rows)
    status, out = run_main(capsys, folder, "--resamples", 100)
    assert status == 0
    assert f"published: stops with TypeError at {records[4].id}" in out
    assert "CORRECTED profile" in out
    (system,) = evaluate(load_runs([folder]), resamples=100).systems
    assert system.published.report is None
    assert next(m for m in system.metrics if (m.task, m.metric) == ("grounding", "strict")).value == 0.9


def test_metrics_that_lack_the_same_resamples_share_a_line(capsys, tmp_path):
    found = [record(f"v{n}", "vqa", "yes" if n == 0 else "no", group=f"p{n // 2}") for n in range(10)]
    data = write_data(tmp_path / "data", found)
    out = run_main(capsys, write_run(tmp_path / "run", data, [perfect(r) for r in found]), "--resamples", 100)[1]
    # One patient of five has the only yes: a third of the resamples lacks it, for every metric that needs both classes.
    lines = [line for line in out.splitlines() if line.endswith("of 100 resamples")]
    assert lines
    assert any("balanced_accuracy, macro_f1" in line for line in lines)
    reasons = [line.split(": ")[1] for line in lines]
    assert len(reasons) == len(set(reasons))


def test_failed_records_are_announced(capsys, tmp_path, data, records):
    rows = [perfect(r) for r in records]
    rows[3] = Prediction(id=rows[3].id, error="out of memory")
    status, out = run_main(capsys, write_run(tmp_path / "run", data, rows), "--resamples", 100)
    assert status == 0
    assert "INCOMPLETE: 1 of 30 records of run failed on our side (first: rv1: out of memory)" in out
    assert "! run [a]" in out
    assert "WARNING: scores are incomplete, records failed in: run" in out


def test_partial_runs_say_so(capsys, tmp_path, data, records):
    folder = write_run(tmp_path / "run", data, [perfect(r) for r in records[:9]], limit=9)
    assert "PARTIAL: only the first 9 records" in run_main(capsys, folder, "--resamples", 100)[1]


def test_different_encoders_are_marked(capsys, tmp_path, data, records):
    rows = [perfect(r) for r in records]
    first = write_run(tmp_path / "first", data, rows)
    second = write_run(tmp_path / "second", data, rows, encoder_fingerprint="e" * 64)
    out = run_main(capsys, first, second, "--resamples", 100)[1]
    assert "different encoders (prompt, image plan, codec or processor) in one table: first [a], second [b]" in out
    same = run_main(capsys, first, first, "--resamples", 100)[1]
    assert "different encoders" not in same


def test_controls_are_missed(capsys, model, majority):
    assert "no control in this table" in run_main(capsys, model, "--resamples", 100)[1]
    assert "no control in this table" not in run_main(capsys, model, majority, "--resamples", 100)[1]


def test_compare_takes_names_and_folders(capsys, model, majority):
    arguments = (model, majority, "--resamples", 100, "--profile", "corrected", "--compare", "majority", model)
    out = run_main(capsys, *arguments)[1]
    assert "majority - model" in out
    assert "model - majority" not in out
    assert "PUBLISHED" not in out
    with pytest.raises(UserError, match="'nobody' names none of the folders"):
        main([str(model), "--compare", "nobody", "model"])


def test_other_codecs_reach_the_published_scorer(tmp_path):
    from collators.codecs.registry import get_codec

    boxed = [record(i, "grounded_vqa", "normal" if i % 2 else "abnormal", views=("ANT", "POST")) for i in range(4)]
    data = write_data(tmp_path / "data", boxed)
    tags = get_codec("scintiground_tags")
    texts = [tags.encode(r.target, r.ask()).replace("10,10,20,20", "10.4,9.5,20.5,20.4") for r in boxed]
    rows = [predict(r, text, codec="scintiground_tags") for r, text in zip(boxed, texts, strict=True)]
    folder = write_run(tmp_path / "run", data, rows, codec="scintiground_tags")
    (system,) = evaluate(load_runs([folder]), resamples=100).systems
    block = system.published.report["grounded_vqa"]
    assert (block["valid_output_rate"], block["mean_iou"]) == (1.0, 1.0)


def test_generic_data_has_no_published_scorer(capsys, tmp_path):
    own = [record(i, "vqa", "yes" if i % 2 else "no") for i in range(6)]
    own = [type(r)(**{n: getattr(r, n) for n in r.__struct_fields__} | {"benchmark": "generic"}) for r in own]
    data = write_data(tmp_path / "data", own, benchmark="generic")
    folder = write_run(tmp_path / "run", data, [predict(r, str(r.target.label), "plain") for r in own], codec="plain")
    out = run_main(capsys, folder, "--resamples", 100)[1]
    assert "the benchmark generic has no published scorer" in out
    assert "exact" in out
    with pytest.raises(UserError, match="has no published scorer"):
        main([str(folder), "--profile", "published"])


def test_mistakes_have_messages(tmp_path, model):
    with pytest.raises(UserError, match="does not exist"):
        main([str(model), "--json", str(tmp_path / "nowhere" / "r.json")])
    for arguments in (["--resamples", "5"], ["--seed", "-1"], ["--resamples", "x"]):
        with pytest.raises(SystemExit):
            main([str(model), *arguments])


def test_published_rows_hold_every_published_table():
    rows = {(row.system, row.task): row for row in published_rows()}
    assert rows["Qwen3-VL-2B (paper)", "vqa"].values["f1:yes"] == 0.118
    assert rows["PaliGemma-3B (paper)", "grounded_vqa"].values["strict_grounded_accuracy"] == 0.701
    assert len(rows) == 8
    assert all("not run here" in row.note for row in rows.values())


def heavy_imports(module):
    """What of the heavy packages an import brings along; an empty text if none."""
    heavy = "{'torch', 'scipy', 'transformers', 'nltk', 'datasets', 'PIL'}"
    code = f"import sys, {module}; print(*sorted({heavy} & set(sys.modules)))"
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("module", ["eval.__main__", "eval.evaluate", "eval.table", "eval.run"])
def test_import_leaves_heavy_packages_out(module):
    assert heavy_imports(module) == ""


def test_heavy_packages_would_be_noticed():
    assert heavy_imports("scipy.optimize") == "scipy"


def test_help_needs_no_numpy():
    code = "import sys, eval.__main__ as m\ntry:\n    m.main(['--help'])\nexcept SystemExit:\n    sys.exit('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout[:5]) == (0, "usage")


def test_conform_lists_mismatches_and_exits_with_1(capsys, tmp_path):
    assert run_main(capsys, "conform", VECTORS)[0] == 0
    cases = json.loads(VECTORS.read_text())
    cases["parse_cases"][0]["expected"]["valid"] ^= True
    spoilt = tmp_path / "spoilt.json"
    spoilt.write_text(json.dumps(cases))
    status, out = run_main(capsys, "conform", spoilt)
    assert status == 1
    assert cases["parse_cases"][0]["name"] in out


def test_control_that_boxes_unasked_views_is_pointed_out(capsys, tmp_path):
    asked = [record(i, "grounding") for i in range(3)]
    data = write_data(tmp_path / "data", asked)
    rows = [predict(r, text_for(r, by_view={"ANT": [10, 10, 20, 20], "PST": [1, 1, 5, 5]})) for r in asked]
    folder = write_run(tmp_path / "majority", data, rows, control="majority")
    assert "boxes views that were not asked in 3 records" in run_main(capsys, folder, "--resamples", 100)[1]


def test_one_patient_alone_has_values_without_intervals(capsys, tmp_path):
    asked = [record(i, "grounding", group="p1") for i in range(3)]
    data = write_data(tmp_path / "data", asked)
    folders = [write_run(tmp_path / name, data, [perfect(r) for r in asked]) for name in ("one", "two")]
    result = evaluate(load_runs(folders), resamples=100)
    assert all((m.low, m.high) == (None, None) for m in result.systems[0].metrics)
    assert all((c.difference, c.low, c.p) == (0.0, None, None) for c in result.comparisons)
    assert result.systems[0].published.bootstrap is None
    assert run_main(capsys, *folders, "--resamples", 100)[0] == 0
