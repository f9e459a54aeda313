"""Our published scorer gives every reference number, and would notice if it did not."""

import copy
import json
from pathlib import Path

import pytest

from eval.conform import conform_report, run_conform
from recipes.errors import UserError

VECTORS = Path(__file__).parents[1] / "vectors" / "scintiground.json"
DOCUMENT = json.loads(VECTORS.read_text(encoding="utf-8"))


def write(tmp_path, document):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_the_reference_cases_have_no_mismatch():
    lines, status = conform_report(VECTORS)
    assert status == 0
    assert lines[-2].endswith("142 cases, no mismatch")
    assert run_conform(VECTORS) == []


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


def changed(value):
    if isinstance(value, bool) or value is None:
        return "tampered"
    if isinstance(value, int | float):
        return value + 1e-6
    return f"{value}x"


def expectations():
    """One leaf of every field of every section of every kind of case."""
    seen = set()
    for path, value in leaves(DOCUMENT):
        # Seed and resamples are settings of a case: another value asks for other numbers.
        if "expected" not in path or path[-1] in {"seed", "resamples"}:
            continue
        at = path.index("expected")
        kind = (path[0], *(part for part in path[at + 1 :] if isinstance(part, str)))
        if path[0] == "parse_cases":
            kind = (DOCUMENT["parse_cases"][path[1]]["schema"], *kind)
        if kind not in seen and len([s for s in seen if s[:3] == kind[:3]]) < 6:
            seen.add(kind)
            yield path, value


@pytest.mark.parametrize(("path", "value"), [pytest.param(p, v, id=".".join(map(str, p))) for p, v in expectations()])
def test_a_tampered_expectation_is_found_at_its_place(tmp_path, path, value):
    kind, at = path[0], path.index("expected")
    cases = copy.deepcopy(DOCUMENT[kind])
    if kind == "control_cases":
        cases["controls"] = [cases["controls"][path[2]]]
        inner = cases["controls"][0]
    else:
        cases = [cases[path[1]]]
        inner = cases[0]
    for key in path[at:-1]:
        inner = inner[key]
    inner[path[-1]] = changed(value)
    found = run_conform(write(tmp_path, {"format": DOCUMENT["format"], kind: cases}))
    assert len(found) == 1
    assert kind in found[0].case
    assert found[0].expected == changed(value)
    field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[at + 1 :])
    assert f".{found[0].field}" == field


def tiny(**case):
    base = {
        "name": "n",
        "schema": "multitask_json",
        "row": {"task_id": "1", "task": "vqa", "label": "head", "answer_label": "no", "targets": [], "images": []},
        "output": '{"task":"vqa","answer":"x","class":"no"}',
        "expected": {"valid": True},
    }
    return {"format": DOCUMENT["format"], "parse_cases": [{**base, **case}]}


def test_an_exception_on_one_side_only_is_a_mismatch(tmp_path):
    (unexpected,) = run_conform(write(tmp_path, tiny(output=None)))
    assert unexpected.field == "raises"
    assert "TypeError" in str(unexpected)
    (missing,) = run_conform(write(tmp_path, tiny(expected={"raises": "TypeError"})))
    assert missing.expected == "TypeError"


def test_an_expected_field_that_nobody_computes_is_a_mismatch(tmp_path):
    lines, status = conform_report(write(tmp_path, tiny(expected={"valid": True, "brilliance": 1})))
    assert status == 1
    assert "brilliance" in lines[0]
    assert lines[-2].endswith("1 cases, 1 mismatch")


def test_true_is_not_one(tmp_path):
    assert len(run_conform(write(tmp_path, tiny(expected={"valid": 1})))) == 1


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "top level is no object"),
        ({"parse_cases": []}, "unknown format None"),
        ({"format": "scintiground-vectors/2", "parse_cases": []}, "unknown format 'scintiground-vectors/2'"),
        ({"format": DOCUMENT["format"]}, "holds no cases"),
        ({"format": DOCUMENT["format"], "riddle_cases": []}, "unknown kind of cases 'riddle_cases'"),
        ({"format": DOCUMENT["format"], "parse_cases": {}}, "parse_cases must be a list"),
        ({"format": DOCUMENT["format"], "parse_cases": [1]}, r"parse_cases\[0\] is not an object"),
        ({"format": DOCUMENT["format"], "control_cases": []}, "control_cases must be an object"),
        ({"format": DOCUMENT["format"], "dataset_cases": [{"rows": []}]}, "'expected' is missing"),
        (tiny(schema="xml"), "unknown schema 'xml'"),
        (tiny(row=None), "'row' must be a dict"),
        (
            {
                "format": DOCUMENT["format"],
                "control_cases": {
                    "train_rows": [],
                    "rows": [],
                    "controls": [{"control": "coin", "expected": {}}],
                },
            },
            "unknown control 'coin'",
        ),
    ],
)
def test_nothing_is_skipped(tmp_path, document, message):
    with pytest.raises(UserError, match=message):
        run_conform(write(tmp_path, document))


@pytest.mark.parametrize("content", [None, "{", '"\\ud800'])
def test_an_unreadable_file_is_a_message(tmp_path, content):
    path = tmp_path / "cases.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(UserError):
        run_conform(path)
