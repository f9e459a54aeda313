"""Tables 3 and 4 of the SGMRI-VQA paper, and the columns that they consist of.

Source: sgmri.md section 9 (the paper, arXiv 2604.15808). All numbers are percent. The paper's "Avg." is the plain mean of
the six columns, in which localization counts twice. The project page shows another detection value in two rows of Table 3
(Qwen2.5-VL-7B 12.00, MedGemma-1.5 26.94); these are the paper's.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

Mode = Literal["image", "video"]
AVERAGE: Final = "average"
# Mode -> columns in the order of the table, as task/score.
COLUMNS: Final[Mapping[Mode, tuple[str, ...]]] = MappingProxyType(
    {
        "image": (
            "detection/a_score",
            "classification/a_score",
            "diagnosis/a_score",
            "localization/v_score",
            "localization/ar_score",
            "captioning/ar_score",
        ),
        "video": (
            "detection/a_score",
            "counting/a_score",
            "classification/a_score",
            "localization/v_score",
            "localization/ar_score",
            "captioning/ar_score",
        ),
    }
)
FINE_TUNED: Final = "Qwen3-VL-8B-SGMRIVQA (fine-tuned)"

# System -> the six columns of its mode, then Avg.
_TABLE_3: Final = {
    "GPT-4o": (50.74, 52.49, 44.71, 3.41, 26.22, 16.90, 32.41),
    "Gemini-2.5-Pro": (19.24, 31.33, 34.32, 3.33, 14.89, 11.91, 19.17),
    "Gemini-2.5-Flash": (67.36, 86.31, 89.68, 5.95, 27.85, 21.72, 49.81),
    "LLaVA-Video-7B": (52.41, 65.41, 71.58, 2.29, 23.11, 13.31, 38.02),
    "Eagle2.5-8B": (26.94, 57.55, 61.39, 2.59, 23.98, 15.41, 31.31),
    "Qwen3-VL-8B": (46.11, 76.02, 80.29, 3.11, 24.55, 19.86, 41.66),
    "InternVL2.5-8B": (22.25, 37.33, 30.43, 1.82, 25.78, 14.37, 22.00),
    "Qwen2.5-VL-7B": (5.29, 50.68, 39.88, 1.51, 26.75, 18.19, 23.72),
    "LLaVA-Med-v1.5 (7B)": (6.90, 85.36, 59.18, 0.00, 23.43, 12.20, 31.18),
    "MedGemma-1.5 (4B)": (20.11, 65.98, 64.61, 2.77, 24.93, 17.24, 32.61),
    FINE_TUNED: (95.11, 97.56, 94.50, 15.51, 28.99, 25.05, 59.45),
}
_TABLE_4: Final = {
    "GPT-4o": (70.57, 35.97, 67.51, 1.20, 24.83, 20.19, 36.71),
    "Gemini-2.5-Pro": (16.03, 4.08, 28.21, 0.26, 12.42, 12.71, 12.29),
    "Gemini-2.5-Flash": (54.89, 17.66, 56.31, 1.83, 23.27, 22.27, 29.37),
    "Qwen3-VL-8B": (62.23, 30.98, 64.72, 0.16, 21.93, 19.05, 33.18),
    "Eagle2.5-8B": (70.65, 16.30, 70.73, 0.02, 19.07, 16.20, 32.16),
    "InternVL2.5-8B": (28.80, 14.95, 44.01, 0.41, 17.66, 16.29, 20.35),
    "LLaVA-Video-7B": (37.23, 13.59, 48.94, 0.06, 16.26, 12.36, 21.41),
    "Qwen2.5-VL-7B": (24.18, 25.27, 62.54, 0.07, 15.63, 16.67, 24.06),
    FINE_TUNED: (99.18, 37.77, 97.70, 5.97, 28.24, 26.54, 49.23),
}


def _named(mode: Mode, rows: Mapping[str, tuple[float, ...]]) -> Mapping[str, Mapping[str, float]]:
    names = (*COLUMNS[mode], AVERAGE)
    return MappingProxyType({system: dict(zip(names, row, strict=True)) for system, row in rows.items()})


# Mode -> system -> column (or `average`) -> percent, in the order of the paper.
PUBLISHED_TABLES: Final[Mapping[Mode, Mapping[str, Mapping[str, float]]]] = MappingProxyType(
    {"image": _named("image", _TABLE_3), "video": _named("video", _TABLE_4)}
)
