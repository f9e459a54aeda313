"""The published SGMRI scorer gives every reference number, and would notice if it did not."""

import copy
import json
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.conform import run_conform
from recipes.errors import UserError

VECTORS = Path(__file__).parents[1] / "vectors" / "sgmri.json"
DOCUMENT = json.loads(VECTORS.read_text(encoding="utf-8"))
HEADER = {key: DOCUMENT[key] for key in ("format", "tolerance", "source")}
EXPECTED = {
    "box_parse_cases": ("expected_format", "expected", "scored_frames"),
    "frame_cases": ("format", "expected_frames", "scored_frames"),
    "a_score_cases": ("answer_after_cleaning", "expected", "details"),
    "v_score_cases": ("skipped", "expected"),
    "ar_cases": ("scored_candidate", "scored_reference", "expected"),
    "table_cases": ("per_item", "expected"),
}


def write(tmp_path, document):
    path = tmp_path / "cases.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_the_reference_cases_have_no_mismatch(capsys):
    assert main(["conform", str(VECTORS)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].endswith("214 cases, no mismatch")
    assert not any(line.startswith("source") for line in lines)


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
    """The first leaf of every field that any case expects, null and not null apart."""
    seen = set()
    for kind, fields in EXPECTED.items():
        for index, case in enumerate(DOCUMENT[kind]):
            for path, value in leaves({field: case[field] for field in fields if field in case}):
                name = (kind, *(part for part in path if isinstance(part, str)), value is None)
                if name not in seen:
                    seen.add(name)
                    yield kind, index, path, value


@pytest.mark.parametrize(
    ("kind", "index", "path", "value"),
    [pytest.param(*each, id=".".join(map(str, (each[0], each[1], *each[2])))) for each in expectations()],
)
def test_a_tampered_expectation_is_found_at_its_place(tmp_path, kind, index, path, value):
    case = copy.deepcopy(DOCUMENT[kind][index])
    inner = case
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = changed(value)
    (found,) = run_conform(write(tmp_path, {**HEADER, kind: [case]}))
    assert found.expected == changed(value)
    assert case["id"] in found.case
    assert "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path) == f".{found.field}"


def test_numbers_may_differ_by_the_tolerance_of_the_file_and_no_more(tmp_path):
    case = copy.deepcopy(next(case for case in DOCUMENT["v_score_cases"] if case["id"] == "v-001"))
    case["expected"]["v_score"] += 5e-10
    document = {**HEADER, "v_score_cases": [case]}
    assert run_conform(write(tmp_path, document)) == []
    assert len(run_conform(write(tmp_path, {**document, "tolerance": 1e-10}))) == 1


RAISING = next(case for case in DOCUMENT["box_parse_cases"] if case["expected_format"] == "raises TypeError")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expected_format": "raises KeyError"}, "KeyError"),
        ({"text": "[1, 2, 3, 4]"}, "TypeError"),
    ],
    ids=["another exception", "no exception"],
)
def test_an_exception_is_compared_by_its_type(tmp_path, changes, expected):
    (found,) = run_conform(write(tmp_path, {**HEADER, "box_parse_cases": [{**RAISING, **changes}]}))
    assert (found.field, found.expected) == ("raises", expected)


def test_an_exception_that_is_not_expected_is_a_mismatch(tmp_path):
    case = {**RAISING, "expected_format": "bbox_2d_json"}
    (found,) = run_conform(write(tmp_path, {**HEADER, "box_parse_cases": [case]}))
    assert "TypeError" in str(found)


BOX = DOCUMENT["box_parse_cases"][0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"riddle_cases": []}, "unknown kind of cases 'riddle_cases'"),
        ({"box_parse_cases": {}}, "box_parse_cases must be a list"),
        ({"box_parse_cases": [1]}, r"box_parse_cases\[0\] is not an object"),
        ({"box_parse_cases": [{**BOX, "colour": 1}]}, "unknown keys of a case: colour"),
        ({"box_parse_cases": [{"id": "b", "level": "image", "text": ""}]}, "the case expects nothing"),
        ({"box_parse_cases": [{**BOX, "level": "slice"}]}, "'level' is 'slice'"),
        ({"box_parse_cases": [{**BOX, "text": None}]}, "'text' must be"),
        ({"box_parse_cases": [{key: BOX[key] for key in BOX if key != "text"}]}, "'text' is missing"),
        ({"box_parse_cases": [BOX], "tolerance": None}, "'tolerance' must be a float"),
        ({}, "holds no cases"),
    ],
)
def test_nothing_is_skipped(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        run_conform(write(tmp_path, {**HEADER, **changes}))
