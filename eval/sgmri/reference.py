"""Runs the reference cases of the format `sgmri-vectors/1`.

Case kinds: `box_parse_cases` (one text), `frame_cases` (frames of a text, or of truth rows), `a_score_cases`,
`v_score_cases`, `ar_cases` (one result each) and `table_cases` (an official file: scores, leaderboard, paper columns).
A case holds its input and what is expected side by side; "raises TypeError" in place of a format or of `expected`
expects that exception.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import UnionType
from typing import Any, Final, NamedTuple

from benchmarks.errors import DataError
from eval.conform_compare import Mismatch, compare_fields, need, outcome
from eval.sgmri.answers import final_answer, without_thinking
from eval.sgmri.boxes import VScore, truth_frames
from eval.sgmri.marks import TextMarks
from eval.sgmri.parse import Reading, read_boxes
from eval.sgmri.published_tables import AVERAGE
from eval.sgmri.result import ScoredResult, score_result
from eval.sgmri.scoring import (
    breakdown_rows,
    evaluate_inference,
    leaderboard_row,
    leaderboard_text,
    paper_average,
    paper_columns,
    paper_row,
)
from eval.sgmri.text import ar_texts

Fields = dict[str, Any]
Case = Mapping[str, Any]

DESCRIPTIONS: Final = frozenset({"source"})
_RAISES: Final = "raises "


class _Kind(NamedTuple):
    """One kind of cases.

    Attributes:
        given: Key of the input -> its type, or the words that it may be.
        expected: Keys of what is expected.
        fields: Computes the latter from the former.
    """

    given: Mapping[str, type | UnionType | tuple[str, ...]]
    expected: frozenset[str]
    fields: Callable[[Case], Fields]


def _box_fields(case: Case) -> Fields:
    given = case.get("image_size")
    size = None if given is None else (given["width"], given["height"])
    reading = read_boxes(case["text"], size)
    return {
        "expected_format": reading.step,
        "expected": [{"frame": frame, "box": list(box)} for frame, box in reading.boxes],
        "scored_frames": _scored_frames(reading),
    }


def _frame_fields(case: Case) -> Fields:
    if case["kind"] == "gt":
        return {"expected_frames": truth_frames(case["ground_truth"])}
    reading = read_boxes(case["text"], None)
    return {
        "format": reading.step,
        "expected_frames": [frame for frame, _ in reading.boxes],
        "scored_frames": _scored_frames(reading),
    }


def _scored_frames(reading: Reading) -> list[int]:
    return [frame or 1 for frame, _ in reading.boxes]


def _a_fields(case: Case) -> Fields:
    prediction = without_thinking(case["model_output"])
    if case["level"] == "volume":
        prediction = final_answer(prediction, case["qa_type"])
    scored = _scored(case)
    fields: Fields = {"answer_after_cleaning": prediction, "expected": None}
    if scored is not None and scored.a is not None:
        fields |= {"expected": scored.a.value, "details": scored.a.details}
    return fields


def _v_fields(case: Case) -> Fields:
    scored = _scored({**case, "task": "localization", "bboxes": case["gt_boxes"]})
    score = scored.v if scored is not None else None
    return {"skipped": scored is None, "expected": None if score is None else _v_numbers(score)}


def _v_numbers(score: VScore) -> Fields:
    return {
        "v_score": score.value,
        "mean_f1": score.mean_f1,
        "gt_count": score.truths,
        "pred_count": score.predicted,
        "detection": score.detection,
        "frame_aware": score.frame_aware,
        # The reference lists the matched pairs from the best to the worst.
        "matched_iou": sorted(score.ious, reverse=True),
    }


def _ar_fields(case: Case) -> Fields:
    candidate, reference = ar_texts(without_thinking(case["model_output"]), case["gt_answer"], case["task"])
    fields: Fields = {"scored_candidate": candidate, "scored_reference": reference, "expected": None}
    scored = _scored(case)
    if scored is not None and scored.ar is not None:
        score = scored.ar
        parts = {"bleu4": score.bleu4, "rouge_l": score.rouge_l, "judge": score.judge}
        fields["expected"] = {**parts, "ar_score": score.value}
    return fields


def _scored(case: Case) -> ScoredResult | None:
    """The case as a result whose id asks for every score of its task."""
    level = "video" if case["level"] == "volume" else "image"
    return score_result({**case, "sample_id": f"case_{level}_qa_{case.get('id', '')}"}, _marks(case))


def _marks(row: Case) -> TextMarks:
    return TextMarks(**{name: row.get(name) for name in TextMarks.__struct_fields__})


def _table_fields(case: Case) -> Fields:
    mode, inference = case["eval_mode"], case["inference"]
    marks = {row["sample_id"]: _marks(row) for row in inference["results"]}
    evaluation = evaluate_inference(inference, mode, marks)
    leaderboard = leaderboard_row(evaluation)
    per_item = [{"sample_id": row["sample_id"], **row["scores"]} for row in evaluation["results"]]
    return {
        "per_item": [{name: value for name, value in row.items() if name != "map"} for row in per_item],
        "expected": {
            "total_samples": evaluation["total_samples"],
            "aggregates": evaluation["aggregates"],
            "leaderboard_row": leaderboard,
            "leaderboard_text": leaderboard_text([leaderboard]),
            "breakdown_rows": breakdown_rows(evaluation),
            "paper_columns": paper_columns(evaluation, mode),
            "paper_avg_percent": paper_row(evaluation, mode)[AVERAGE],
            "paper_avg_mean": paper_average(evaluation, mode),
        },
    }


_LEVELS: Final = ("image", "volume")
_NAMES: Final = {"id": str, "note": str | None}
_REPLIES: Final = {
    "judge_reply": str | None,
    "judge_reply_on_reference": str | None,
    "bertscore_f1": float | int | None,
}

_KINDS: Final[Mapping[str, _Kind]] = {
    "box_parse_cases": _Kind(
        {"text": str, "level": _LEVELS, "image_size": dict | None},
        frozenset({"expected_format", "expected", "scored_frames"}),
        _box_fields,
    ),
    "frame_cases": _Kind(
        {"kind": ("text", "gt"), "text": str | None, "ground_truth": list | None},
        frozenset({"format", "expected_frames", "scored_frames"}),
        _frame_fields,
    ),
    "a_score_cases": _Kind(
        {"level": _LEVELS, "task": str, "qa_type": str, "gt_answer": str, "model_output": str},
        frozenset({"answer_after_cleaning", "expected", "details"}),
        _a_fields,
    ),
    "v_score_cases": _Kind(
        {
            "level": _LEVELS,
            "dataset": str,
            "question": str,
            "model_output": str,
            "gt_answer": str,
            "gt_boxes": list,
        },
        frozenset({"skipped", "expected"}),
        _v_fields,
    ),
    "ar_cases": _Kind(
        {"level": _LEVELS, "task": str, "model_output": str, "gt_answer": str, **_REPLIES},
        frozenset({"scored_candidate", "scored_reference", "expected"}),
        _ar_fields,
    ),
    "table_cases": _Kind(
        {"eval_mode": ("image", "video"), "inference": dict}, frozenset({"per_item", "expected"}), _table_fields
    ),
}


def kind_runner(document: Mapping[str, Any], where: str) -> Callable[[str, object, str], tuple[int, list[Mismatch]]]:
    """What runs one kind of a file's cases, numbers being compared within the file's `tolerance`.

    Raises:
        DataError: The file states no tolerance.
    """
    return partial(_run_kind, tolerance=need(document, "tolerance", float, where))


def _run_kind(kind: str, cases: object, where: str, *, tolerance: float) -> tuple[int, list[Mismatch]]:
    """Runs all cases of one kind; returns their number and the mismatches.

    Raises:
        DataError: An unknown kind or key, or a case that lacks a key of its kind.
    """
    if kind not in _KINDS:
        raise DataError(f"unknown kind of cases {kind!r}", where=where, fix=f"this program runs {', '.join(_KINDS)}")
    if not isinstance(cases, list):
        raise DataError(f"{kind} must be a list", where=where)
    found: list[Mismatch] = []
    for index, case in enumerate(cases):
        if not isinstance(case, dict):
            raise DataError(f"{kind}[{index}] is not an object", where=where)
        found += _run_case(_KINDS[kind], case, f"{kind} {case.get('id', index)!r}", tolerance)
    return len(cases), found


def _run_case(kind: _Kind, case: Case, where: str, tolerance: float) -> Iterator[Mismatch]:
    _check(kind, case, where)
    expected: Fields = {key: value for key, value in case.items() if key in kind.expected}
    for field in ("expected_format", "format", "expected"):
        value = case.get(field)
        if isinstance(value, str) and value.startswith(_RAISES):
            expected = {"raises": value.removeprefix(_RAISES)}
    yield from compare_fields(where, expected, outcome(lambda: kind.fields(case)), tolerance=tolerance)


def _check(kind: _Kind, case: Case, where: str) -> None:
    unknown = sorted(case.keys() - {*_NAMES, *kind.given, *kind.expected})
    if unknown:
        raise DataError(f"unknown keys of a case: {', '.join(unknown)}", where=where)
    if not case.keys() & kind.expected:
        raise DataError("the case expects nothing", where=where, fix=f"known are {', '.join(sorted(kind.expected))}")
    for key, wanted in {**_NAMES, **kind.given}.items():
        value = case.get(key)
        if isinstance(wanted, tuple):
            if value not in wanted:
                raise DataError(f"{key!r} is {value!r:.80}", where=where, fix=f"known are {', '.join(wanted)}")
        elif not isinstance(value, wanted):
            raise DataError(
                f"{key!r} must be {wanted}, it is {value!r:.80}" if key in case else f"{key!r} is missing", where=where
            )
