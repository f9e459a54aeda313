"""The published ScintiGround tables (locked test split of 3,754 rows), not run here.

Metric names are those of the published profile. `inferred` rows follow from the published class counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from eval.schema import PublishedRow

OFFICIAL_TEST_COUNTS: Mapping[str, int] = MappingProxyType({"vqa": 1305, "grounding": 1225, "grounded_vqa": 1224})
NOTE = "published, not run here; official test split"
_QWEN, _PALIGEMMA, _CONSTANT = "Qwen3-VL-2B (paper)", "PaliGemma-3B (paper)", "always no/normal"
_STRICT = MappingProxyType({"grounding": "strict_grounding_accuracy", "grounded_vqa": "strict_grounded_accuracy"})

# accuracy, balanced accuracy, macro-F1
_CLASSES = (
    (_QWEN, "vqa", 0.886, 0.528, 0.529),
    (_PALIGEMMA, "vqa", 0.888, 0.535, 0.541),
    (_QWEN, "grounded_vqa", 0.906, 0.539, 0.550),
    (_PALIGEMMA, "grounded_vqa", 0.908, 0.524, 0.524),
)
# mean IoU, IoU@0.5, strict, valid
_BOXES = (
    (_QWEN, "grounding", 0.642, 0.857, 0.827, 0.998),
    (_PALIGEMMA, "grounding", 0.633, 0.787, 0.762, 1.000),
    (_QWEN, "grounded_vqa", 0.640, 0.843, 0.765, 0.999),
    (_PALIGEMMA, "grounded_vqa", 0.629, 0.776, 0.701, 1.000),
)
# precision, recall, F1 of the negative class, then of the positive one
_PER_CLASS = (
    (_QWEN, "vqa", 0.897, 0.985, 0.939, 0.357, 0.071, 0.118),
    (_PALIGEMMA, "vqa", 0.899, 0.985, 0.940, 0.414, 0.085, 0.141),
    (_QWEN, "grounded_vqa", 0.913, 0.991, 0.951, 0.526, 0.087, 0.149),
    (_PALIGEMMA, "grounded_vqa", 0.910, 0.996, 0.951, 0.600, 0.052, 0.096),
)
_NAMES = MappingProxyType({"vqa": ("no", "yes"), "grounded_vqa": ("normal", "abnormal")})


def published_rows() -> list[PublishedRow]:
    """One row per published system and task."""
    values: dict[tuple[str, str], dict[str, float]] = {}
    for system, task, accuracy, balanced, macro in _CLASSES:
        values[system, task] = {"accuracy": accuracy, "balanced_accuracy": balanced, "macro_f1": macro}
    for system, task, mean_iou, at_half, strict, valid in _BOXES:
        boxes = {"mean_iou": mean_iou, "iou_at_0_5": at_half, _STRICT[task]: strict, "valid_output_rate": valid}
        values.setdefault((system, task), {}).update(boxes)
    for system, task, *numbers in _PER_CLASS:
        names = [f"{part}:{label}" for label in _NAMES[task] for part in ("precision", "recall", "f1")]
        values[system, task] |= dict(zip(names, numbers, strict=True))
    rows = [
        PublishedRow(system=system, task=task, values=found, kind="published", note=NOTE)
        for (system, task), found in values.items()
    ]
    constant = {"vqa": 0.892, "grounded_vqa": 0.906}
    rows += [
        PublishedRow(
            system=_CONSTANT,
            task=task,
            values={"accuracy": accuracy, "balanced_accuracy": 0.5},
            kind="inferred",
            note="from the class counts of the official test split, not run here",
        )
        for task, accuracy in constant.items()
    ]
    return rows
