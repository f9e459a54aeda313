"""Runs the reference cases of the format `scintiground-vectors/1`.

Case kinds: `parse_cases` (one text), `target_cases` (export rows and target texts),
`loc_number_cases` (location numbers), `dataset_cases` (reports, strata, intervals of a set) and
`control_cases` (controls learnt from train rows).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.errors import DataError
from benchmarks.priors import CONTROLS, Priors, control_text, fit
from benchmarks.readers.scintiground_export import export_row, official_answer
from benchmarks.scintiground_text import BOX_TASKS, CLASS_WORDS, multitask_json, old_json, tags
from collators.codecs.location import box_to_grid, grid_to_text
from eval.conform_compare import Mismatch, compare_fields, need, outcome
from eval.scintiground.bootstrap import RESAMPLES, SEED, intervals, patients_of, replicates
from eval.scintiground.compare import compare
from eval.scintiground.loc_form import score_loc
from eval.scintiground.old_forms import parse_old_json, parse_tags, score_old
from eval.scintiground.parse import Row, audit_issues
from eval.scintiground.report import rate, report
from eval.scintiground.scoring import HIT, ScoredRow, score_row, score_rows
from eval.scintiground.strata import audit, strata, threshold_sweep

Fields = dict[str, Any]
Case = Mapping[str, Any]


def run_parse_case(case: Case, where: str) -> Iterator[Mismatch]:
    """One output of one row, read by the scorer of its `schema`."""
    schema, row = need(case, "schema", str, where), need(case, "row", dict, where)
    if schema not in _SCHEMAS:
        raise DataError(f"unknown schema {schema!r}", where=where, fix=f"known are {', '.join(_SCHEMAS)}")
    if "output" not in case:
        raise DataError("'output' is missing", where=where)
    got = outcome(lambda: _SCHEMAS[schema](row, case["output"]))
    yield from compare_fields(where, need(case, "expected", dict, where), got)


def _multitask_fields(row: Row, text: object) -> Fields:
    scored = score_row(row, text)
    read = scored.lenient
    fields: Fields = {
        "valid": scored.valid,
        "parsed_task": read.task,
        "answer": read.answer,
        "region": read.region,
        "class_raw": read.label,
        "boxes_lenient": [box.plain() for box in read.boxes],
    }
    if row["task"] in CLASS_WORDS:
        fields |= {"class": scored.label, "class_correct": scored.label_correct}
    if row["task"] in BOX_TASKS:
        fields |= {
            "iou": [round(iou, 6) for iou in scored.ious],
            "mean_iou": rate(sum(scored.ious), len(scored.ious)),
            "iou_at_0_5": rate(sum(iou >= HIT for iou in scored.ious), len(scored.ious)),
            "valid_boxes": scored.boxes,
            "region_correct": scored.region_correct,
            "strict": scored.strict,
        }
    return {**fields, "audit_issues": audit_issues(text, row)}


_SCHEMAS: Mapping[str, Callable[[Row, Any], Fields]] = {
    "multitask_json": _multitask_fields,
    "tags": lambda row, text: score_old(row, parse_tags(text)),
    "json": lambda row, text: score_old(row, parse_old_json(text, row["task"])),
    "paligemma_loc": score_loc,
}


def run_target_case(case: Case, where: str) -> Iterator[Mismatch]:
    """A release row, its export row and its target text in three forms."""
    row, task = need(case, "release_row", dict, where), need(case, "task", str, where)

    def fields() -> Fields:
        exported = export_row(row, task=task, where=where)
        answer = official_answer(row, task=task, where=where)
        texts = {"multitask_json": multitask_json(answer), "json": old_json(answer), "tags": tags(answer)}
        # Reference rows state the target text under `targets`, in all forms.
        return {"export_row": {k: v for k, v in exported.items() if k != "target"}, "targets": texts}

    yield from compare_fields(where, need(case, "expected", dict, where), outcome(fields))


def run_loc_number_case(case: Case, where: str) -> Iterator[Mismatch]:
    """A box on a canvas as location numbers."""
    box, canvas = need(case, "box_canvas", list, where), need(case, "canvas_size", list, where)

    def fields() -> Fields:
        grid = box_to_grid(box, canvas)
        return {"box_1024": list(grid), "text": grid_to_text(grid)}

    yield from compare_fields(where, need(case, "expected", dict, where), outcome(fields))


def run_dataset_case(case: Case, where: str) -> Iterator[Mismatch]:
    """A set of rows and outputs: the sections that the case expects."""
    rows = need(case, "rows", list, where)
    expected = need(case, "expected", dict, where)
    outputs = _texts(need(case, "outputs", list, where), where)
    second = _texts(case.get("second_outputs", []), where)
    got = outcome(lambda: _dataset_fields(rows, outputs, second, expected))
    yield from compare_fields(where, expected, _without_unlisted(got, expected))


def _dataset_fields(
    rows: Sequence[Row], outputs: Mapping[str, object], second: Mapping[str, object], expected: Case
) -> Fields:
    scored = score_rows(rows, outputs)
    fields: Fields = {
        "report": report(scored),
        "threshold_sweep": threshold_sweep(scored),
        "audit": audit(rows, outputs),
        "strata": strata(scored),
    }
    if "raises" in expected:
        patients_of(scored)
    if expected.keys() & {"bootstrap", "bootstrap_first_replicates", "paired_comparison_first_minus_second"}:
        fields |= _bootstrap_fields(scored, score_rows(rows, second) if second else None, expected)
    return fields


def _bootstrap_fields(first: Sequence[ScoredRow], second: Sequence[ScoredRow] | None, expected: Case) -> Fields:
    settings = expected.get("bootstrap", {})
    resamples, seed = settings.get("resamples", RESAMPLES), settings.get("seed", SEED)
    values = replicates(first, resamples=resamples, seed=seed)
    shown = expected.get("bootstrap_first_replicates", {})
    fields: Fields = {
        "bootstrap": intervals(values, patients=len(patients_of(first)), resamples=resamples, seed=seed),
        "bootstrap_first_replicates": {name: metric[: len(shown.get(name, ()))] for name, metric in values.items()},
    }
    if second is not None:
        others = replicates(second, resamples=resamples, seed=seed)
        fields["paired_comparison_first_minus_second"] = compare(values, others)
    return fields


def run_control_cases(cases: Case, where: str) -> Iterator[Mismatch]:
    """Controls learnt from `train_rows`: their texts for `rows`, and the report of these."""
    train_rows, rows = need(cases, "train_rows", list, where), need(cases, "rows", list, where)
    priors = fit(train_rows)
    for index, case in enumerate(need(cases, "controls", list, where)):
        name = f"{where} {case.get('name', f'controls[{index}]')!r}"
        control = need(case, "control", str, name)
        if control not in CONTROLS:
            raise DataError(f"unknown control {control!r}", where=name, fix=f"known are {', '.join(CONTROLS)}")
        expected = need(case, "expected", dict, name)
        yield from compare_fields(
            name, expected, _without_unlisted(outcome(_control_fields(priors, rows, control)), expected)
        )


def _control_fields(priors: Priors, rows: Sequence[Row], control: str) -> Callable[[], Fields]:
    def fields() -> Fields:
        texts = {row["task_id"]: control_text(priors, row, control=control) for row in rows}
        return {
            "predictions": [{"task_id": task_id, "prediction": text} for task_id, text in texts.items()],
            "report": report(score_rows(rows, texts)),
        }

    return fields


def _without_unlisted(got: Mapping[str, Any], expected: Case) -> Fields:
    """Leaves out what a reference may leave out: regions, and whole fields of stratification."""
    fields = dict(got)
    if "report" in fields and "per_region" not in expected.get("report", {}):
        fields["report"] = {key: value for key, value in fields["report"].items() if key != "per_region"}
    if "strata" in fields:
        listed = expected.get("strata", {})
        fields["strata"] = {key: value for key, value in fields["strata"].items() if key in listed}
    return fields


def _texts(outputs: Sequence[Any], where: str) -> dict[str, object]:
    """Id -> text; as in the published scorer, the later of two equal ids counts."""
    texts: dict[str, object] = {}
    for index, output in enumerate(outputs):
        if not isinstance(output, dict) or not {"task_id", "prediction"} <= output.keys():
            raise DataError(f"outputs[{index}] needs task_id and prediction", where=where)
        texts[output["task_id"]] = output["prediction"]
    return texts


# Kind -> what runs one case of it.
LISTS: Mapping[str, Callable[[Case, str], Iterator[Mismatch]]] = {
    "parse_cases": run_parse_case,
    "target_cases": run_target_case,
    "loc_number_cases": run_loc_number_case,
    "dataset_cases": run_dataset_case,
}


def run_kind(kind: str, cases: object, where: str) -> tuple[int, list[Mismatch]]:
    """Runs all cases of one kind; returns their number and the mismatches.

    Raises:
        DataError: An unknown kind, or a case that lacks a key of its kind.
    """
    if kind == "control_cases":
        if not isinstance(cases, dict):
            raise DataError("control_cases must be an object", where=where)
        return len(need(cases, "controls", list, where)), list(run_control_cases(cases, kind))
    if kind not in LISTS:
        known = ", ".join([*LISTS, "control_cases"])
        raise DataError(f"unknown kind of cases {kind!r}", where=where, fix=f"this program runs {known}")
    if not isinstance(cases, list):
        raise DataError(f"{kind} must be a list", where=where)
    found: list[Mismatch] = []
    for index, case in enumerate(cases):
        if not isinstance(case, dict):
            raise DataError(f"{kind}[{index}] is not an object", where=where)
        found += LISTS[kind](case, f"{kind} {case.get('name', index)!r}")
    return len(cases), found
