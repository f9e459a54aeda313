"""One official result and what the published scorer makes of it.

Source: sgmri.md section 8; checked against the authors' scorer (github.com/lamawmouk/SGMRIQA, commit a77adeb).
A result is one entry of an official `*_inference.json` (sgmri.md section 7). Its id decides what is scored: `_qa_` is
needed for A- and AR-Score, `_video_` switches on the final-answer cut.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from benchmarks.sgmri import EXTRA_GROUNDING
from eval.sgmri.answers import AScore, final_answer, score_answer, without_thinking
from eval.sgmri.boxes import IMAGE_SIZES, TruthRow, VScore, rows_in_answer, score_boxes
from eval.sgmri.marks import TextMarks
from eval.sgmri.parse import FramedBox, read_boxes
from eval.sgmri.text import ARScore, ar_texts, score_texts, strip_boxes

METRICS: Final = ("a_score", "ar_score", "v_score", "map")
_NO_MARKS: Final = TextMarks()

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredResult:
    """The published judgement of one result; a score that it does not get is `None`.

    Attributes:
        sample_id: The result's id.
        groups: Values by which scores are broken down: dataset, level, qa_type, task.
        a: A-Score.
        ar: AR-Score.
        v: V-Score.
    """

    sample_id: str
    groups: Mapping[str, str]
    a: AScore | None
    ar: ARScore | None
    v: VScore | None

    @property
    def scores(self) -> dict[str, float]:
        """The scores it gets, by the names of `METRICS`."""
        values = (
            None if self.a is None else self.a.value,
            None if self.ar is None else self.ar.value,
            None if self.v is None else self.v.value,
            None if self.v is None else self.v.mean_f1,
        )
        return {name: value for name, value in zip(METRICS, values, strict=True) if value is not None}


def score_result(result: Result, marks: TextMarks = _NO_MARKS) -> ScoredResult | None:
    """Scores one result; `None` for the second wording of a localization question.

    Args:
        result: The official entry; a key that is missing counts as empty, as published.
        marks: What judge and BERTScore said of it.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError, AttributeError: Where the published scorer stops, which
            costs a model all its scores: see `eval.sgmri.parse`, and any text that is null.
    """
    task, question = result.get("task", ""), result.get("question", "")
    if task == "localization" and question.startswith(EXTRA_GROUNDING):
        return None
    sample_id, qa_type = result.get("sample_id", ""), result.get("qa_type", "open_ended")
    prediction, key = without_thinking(result.get("model_output", "")), result.get("gt_answer", "")
    answer = final_answer(prediction, qa_type) if "_video_" in sample_id else prediction
    boxes = predicted_boxes(prediction, result) if task == "localization" else ()
    asked = "_qa_" in sample_id
    return ScoredResult(
        sample_id=sample_id,
        groups={
            "dataset": result.get("dataset", ""),
            "level": result.get("level", ""),
            "qa_type": qa_type,
            "task": task,
        },
        a=score_answer(answer, key, qa_type, result.get("labels", ()))
        if asked and qa_type != "open_ended" and task != "localization"
        else None,
        ar=_ar_score(prediction, key, result, marks) if asked and task in ("captioning", "localization") else None,
        v=_v_score(boxes, key, result) if task == "localization" else None,
    )


def predicted_boxes(prediction: str, result: Result) -> Sequence[FramedBox]:
    """The boxes of an answer without thinking, with the frames that count.

    Raises:
        TypeError, ValueError, OverflowError, RecursionError: As `read_boxes`.
    """
    size = IMAGE_SIZES.get(result.get("dataset", ""))
    # Kept fault: a box without a frame lies on frame 1.
    boxes = [FramedBox(frame or 1, box) for frame, box in read_boxes(prediction, size).boxes]
    # Without a box the published scorer looks again, after a second removal of thinking: tags may have been nested.
    return boxes or read_boxes(without_thinking(prediction), size).boxes


def _ar_score(prediction: str, key: str, result: Result, marks: TextMarks) -> ARScore:
    candidate, reference = ar_texts(prediction, key, result["task"])
    if result["task"] == "localization":
        # The reasoning is stripped and thrown away; only a null in its place has an effect.
        strip_boxes(result.get("gt_reasoning", ""))
    return score_texts(candidate, reference, marks)


def _v_score(boxes: Sequence[FramedBox], key: str, result: Result) -> VScore | None:
    rows: Sequence[TruthRow] = result.get("bboxes", ())
    if not rows and "<bbx>" in key:
        rows = rows_in_answer(key, IMAGE_SIZES.get(result.get("dataset", "")))
    return score_boxes(rows, boxes) if rows else None
