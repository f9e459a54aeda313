"""How the report writes numbers, names and text from data."""

from __future__ import annotations

import math

NOT_DEFINED = "n.d."

# Metric name -> column head, and the one line that explains it. Names of the published profile are listed
# where the corrected profile has no metric of the same name.
_METRICS: dict[str, tuple[str, str]] = {
    "balanced_accuracy": (
        "balanced acc.",
        "Mean recall over the classes; a constant answer gets one over their number.",
    ),
    "macro_f1": ("macro-F1", "Mean F1 over the classes, each class counted alike."),
    "accuracy": ("accuracy", "Share of records with the right class."),
    "exact_match": ("exact match", "Share of records whose whole answer is right, capitals and punctuation aside."),
    "majority_share": ("majority share", "Share of the most frequent target class: the accuracy of a constant answer."),
    "accuracy_gain": ("accuracy gain", "Accuracy minus the majority share; below 0 is worse than a constant answer."),
    "precision": ("precision", "Share of the records called this class that are of this class."),
    "recall": ("recall", "Share of the records of this class that are called so."),
    "f1": ("F1", "Harmonic mean of precision and recall of one class; a missing answer is a missed record."),
    "mean_iou": ("mean IoU", "Intersection over union, averaged over target boxes; a missing box counts 0."),
    "mean_iou_row": ("mean IoU / record", "As mean IoU, averaged within each record first."),
    "mean_iou_group": ("mean IoU / patient", "As mean IoU, averaged within each patient (group) first."),
    "iou_at_0.3": ("IoU@.3", "Share of target boxes found with an IoU of at least .3."),
    "iou_at_0.5": ("IoU@.5", "Share of target boxes found with an IoU of at least .5."),
    "iou_at_0.75": ("IoU@.75", "Share of target boxes found with an IoU of at least .75."),
    "iou_at_0.9": ("IoU@.9", "Share of target boxes found with an IoU of at least .9."),
    "iou_at_0_5": ("IoU@.5", "Share of target boxes found with an IoU of at least .5."),
    "iou_sweep_mean": ("sweep mean", "Mean of the shares at IoU .3, .5, .75 and .9."),
    "strict": ("strict", "Share of records with every box at IoU ≥ .5 and, if asked, the right class."),
    "strict_with_region": ("strict + region", "As strict, and the region named right."),
    "strict_grounding_accuracy": ("strict", "Published: every box at IoU ≥ .5 and the region named right."),
    "strict_grounded_accuracy": ("strict", "Published: every box at IoU ≥ .5, region and class right."),
    "region_accuracy": ("region acc.", "Share of records with the region named right."),
    "a_score": (
        "A-Score",
        "Mean over records: right yes/no, option, number or text counts 1; several options count their F1.",
    ),
    "v_score": (
        "V-Score",
        "Mean over records of the IoUs of matched boxes, divided by the number of target boxes; extra boxes are free.",
    ),
    "iou_over_max": (
        "IoU / max boxes",
        "As V-Score, but divided by the larger of the numbers of target and predicted boxes.",
    ),
    "box_f1_at_0.3": ("box F1@.3", "Mean over records of the F1 of boxes matched at an IoU of at least .3."),
    "box_f1_at_0.5": ("box F1@.5", "Mean over records of the F1 of boxes matched at an IoU of at least .5."),
    "label_iou": ("V-Score, labels", "As V-Score, where a box matches only a target box with the same label."),
    "frame_precision": (
        "frame precision",
        "Mean over volumes' records: share of frames with predicted boxes that have one.",
    ),
    "frame_recall": ("frame recall", "Mean over volumes' records: share of frames with target boxes that are named."),
    "frame_f1": ("frame F1", "Harmonic mean of frame precision and recall, averaged over records."),
    "ar_score": (
        "AR-Score",
        "Likeness of answer texts without places: judge .4, and BERTScore, BLEU-4 and ROUGE-L .6 in equal parts; of those "
        "that were computed.",
    ),
    "bleu4": ("BLEU-4", "Sentence BLEU of answer texts without places, averaged over records."),
    "rouge_l": ("ROUGE-L", "F1 of the longest common subsequence of stemmed words, averaged over records."),
    "bertscore": ("BERTScore", "BERTScore F1, rescaled with the baseline; below 0 counts 0."),
    "judge": ("judge", "Mean of the judge's marks for accuracy, relevance and helpfulness (1 to 10), divided by 10."),
    "auroc": (
        "AUROC",
        "Share of pairs of a positive and a negative record that P(positive) ranks right, ties half; .5 is chance.",
    ),
    "average_precision": (
        "avg. precision",
        "Area under the precision-recall steps of P(positive); chance is the share of positives.",
    ),
    "brier": ("Brier", "Mean squared distance between P(positive) and the target as 0 or 1; lower is better."),
    "ece": (
        "ECE",
        "Expected calibration error: mean distance between P(positive) and the share of positives over 15 bins of "
        "equal width, weighted by records; lower is better, and chance alone makes it larger than 0.",
    ),
    "valid_rate": ("valid", "Share of outputs that can be read as an answer; all others score zero."),
    "valid_output_rate": ("valid", "Share of outputs that pass the published validity check."),
}


def metric_label(name: str) -> str:
    """Head of a metric's column; `f1:yes` becomes `F1 yes`."""
    base, _, label = name.partition(":")
    head = _METRICS[base][0] if base in _METRICS else base.replace("_", " ")
    return f"{head} {label}" if label else head


def metric_help(name: str) -> str:
    """One line on what a metric means; empty for a name that says it itself."""
    base = name.partition(":")[0]
    return _METRICS[base][1] if base in _METRICS else ""


def number(value: float | None) -> str:
    """Three decimals without a leading zero: `.643`, `-.012`, `1.000`; `n.d.` if not defined."""
    if value is None or math.isnan(value):
        return NOT_DEFINED
    text = f"{value:.3f}"
    sign, digits = ("-", text[1:]) if text.startswith("-") else ("", text)
    if float(digits) == 0:
        sign = ""
    return sign + digits.removeprefix("0")


def percent(value: float | None) -> str:
    """In percent, two decimals: `64.30`; `n.d.` if not defined."""
    return NOT_DEFINED if value is None else f"{100 * value:.2f}"


def signed(value: float | None) -> str:
    """As `number`, with a plus sign on positive values."""
    text = number(value)
    return f"+{text}" if value is not None and text not in {NOT_DEFINED, ".000"} and not text.startswith("-") else text


def interval(low: float | None, high: float | None, *, sign: bool = False) -> str:
    """`[.601, .685]`; empty if there is no interval."""
    if low is None or high is None:
        return ""
    write = signed if sign else number
    return f"[{write(low)}, {write(high)}]"


def p_value(value: float | None) -> str:
    """Four decimals, since the least p of 2,000 resamples is about .001."""
    return NOT_DEFINED if value is None else f"{value:.4f}".removeprefix("0")


def visible(text: str) -> str:
    """Text with control characters as their symbols; a browser would drop or hide them."""
    return text.translate(_CONTROLS)


# Line breaks and tabs stay. Direction marks could make a text read as another.
_CONTROLS: dict[int, str] = (
    {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10)}
    | {127: "\u2421"}
    | {code: f"\\u{code:04x}" for code in (*range(0x80, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))}
)
