"""Records and predictions in the official SGMRI-VQA form, the `*_inference.json` that the published scorer reads.

Layout: sgmri.md, section 7 (the published code, github.com/lamawmouk/SGMRIQA). One file per level. Two keys are ours:
`finish` of a result, and `encoder_fingerprint` of a file, whose `prompt_mode` is `custom` (the published prompts are lost).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from benchmarks.errors import DataError
from benchmarks.predictions import Manifest, Prediction
from benchmarks.schema import Box, Record
from benchmarks.scintiground_text import plain_number
from benchmarks.sgmri import ORGANS, Level, level_and_task
from collators.codecs.base import CodecError
from collators.codecs.registry import get_codec

# Their texts go out as the model wrote them: the published scorer was made for them.
OFFICIAL_CODECS: Final = ("sgmri_json", "sgmri_text", "plain")
# How any other codec's answers are written.
WRITTEN_AS: Final = "sgmri_text"
LEVEL_NAMES: Final[Mapping[Level, str]] = MappingProxyType({"image": "image_level", "volume": "volume_level"})
# What the published evaluator calls the levels in folders and on its command line.
FOLDERS: Final[Mapping[Level, str]] = MappingProxyType({"image": "image_level", "volume": "video_level"})
MODES: Final[Mapping[Level, str]] = MappingProxyType({"image": "image", "volume": "video"})
_BOX_FORMATS: Final = MappingProxyType({"sgmri_json": "[x, y, width, height]", "plain": None})
# A failed call as the published code stores it; it then scores the text as an answer.
FAILED: Final = re.compile(r"\[ERROR: (.*)\]", re.DOTALL)


def official_task(record: Record) -> tuple[Level, str]:
    """The record's level and official task.

    Raises:
        DataError: The task is not one of SGMRI-VQA.
    """
    try:
        return level_and_task(record)
    except ValueError as error:
        raise DataError(
            str(error), where=f"{record.place}, field task", fix="prepare the release again with the reader `sgmri`"
        ) from error


def official_result(record: Record, prediction: Prediction, codec_name: str) -> dict[str, Any]:
    """One entry of `results`.

    `cost` and `duration` are not known by row and stand as 0, and so do token counts that are not stored; several
    published runs hold the same zeros. `labels` are the findings of the boxes; a slice without a box is `Normal`, as in
    the release.

    Args:
        record: The question.
        prediction: Its row.
        codec_name: Codec that read the row's text.

    Raises:
        DataError: The record is not one of SGMRI-VQA, or a slice of a volume has no frame number.
    """
    level, task = official_task(record)
    target = record.target
    result: dict[str, Any] = {"sample_id": record.id, "model_output": official_output(record, prediction, codec_name)}
    if prediction.error is None:
        tokens = prediction.tokens
        result |= {
            "prompt_tokens": tokens.prompt if tokens else 0,
            "completion_tokens": tokens.new if tokens else 0,
            "cost": 0.0,
            "duration": 0.0,
            "finish": prediction.finish,
        }
    else:
        result |= {"duration": 0.0, "error": prediction.error}
    findings = list(dict.fromkeys(box.label for box in target.boxes if box.label))
    return result | {
        "dataset": _organ(record),
        "level": LEVEL_NAMES[level],
        "task": task,
        # As the published scorer reads a result without a type.
        "qa_type": record.answer_type or "open_ended",
        "question": record.question,
        "gt_answer": target.text or "",
        "gt_reasoning": target.reasoning or "",
        "labels": findings or (["Normal"] if level == "image" else []),
        "bboxes": [_box(record, box, level) for box in target.boxes],
        "volume_id": record.group,
    }


def official_output(record: Record, prediction: Prediction, codec_name: str) -> str:
    """The text that the published scorer reads.

    It is the model's own text where the codec's form is an official one. Else it is the decoded answer and its boxes
    written by the codec `sgmri_text`, or the model's own text where the answer is invalid or has no such form. The
    reasoning is left out then: the published reference is the answer alone, and of a text the published scorer takes the
    last number as the count. A record that failed has the text by which the published code stores a failed call.
    """
    if prediction.error is not None:
        return f"[ERROR: {prediction.error}]" if prediction.text is None else prediction.text
    text = prediction.text or ""
    if codec_name in OFFICIAL_CODECS or prediction.answer is None:
        return text
    try:
        answer = msgspec.structs.replace(prediction.answer, reasoning=None)
        return get_codec(WRITTEN_AS).encode(answer, record.ask())
    except (CodecError, ValueError):
        return text


def official_inference(
    records: Sequence[Record], predictions: Sequence[Prediction], manifest: Manifest, level: Level
) -> dict[str, Any]:
    """A whole inference file.

    It depends on its arguments alone: `timestamp`, which a manifest does not hold, is null, and so is what the manifest
    does not say of the model.

    Args:
        records: Records of both levels or one.
        predictions: One per record, in the same order.
        manifest: The manifest of the predictions.
        level: Which records to write.

    Raises:
        DataError: As `official_result`.
    """
    results = [
        official_result(record, prediction, manifest.codec)
        for record, prediction in zip(records, predictions, strict=True)
        if official_task(record)[0] == level
    ]
    return {
        "model_key": model_key(manifest),
        "model_name": manifest.name,
        "model_id": manifest.weights or manifest.control or manifest.name,
        "model_config": {
            "max_context_window": None,
            "max_new_tokens": manifest.decoding.get("max_new_tokens"),
            "supports_grounding": manifest.codec != "plain",
            "supports_multi_image": level == "volume",
            "supports_thinking": None,
            "bbox_format": _BOX_FORMATS.get(manifest.codec, "<bbx>[x, y, width, height]</bbx>"),
        },
        "prompt_mode": "custom",
        "encoder_fingerprint": manifest.encoder_fingerprint,
        "timestamp": None,
        "total_samples": len(results),
        "total_cost": 0.0,
        "results": results,
    }


def inference_path(manifest: Manifest, level: Level) -> str:
    """Where the published evaluator looks for a file, below its output folder."""
    return f"{FOLDERS[level]}/inference/{model_key(manifest)}_{MODES[level]}_inference.json"


def model_key(manifest: Manifest) -> str:
    """The run's name as part of a file name: letters, digits, `.`, `-` and `_` only."""
    return re.sub(r"[^\w.-]+", "_", manifest.name).lstrip(".") or "model"


def _organ(record: Record) -> str:
    organ = record.strata.get("organ")
    if organ not in ORGANS:
        raise DataError(
            f"organ {organ!r} is not one of {', '.join(ORGANS)}",
            where=f"{record.place}, field strata",
            fix="give the stratum `organ`, or prepare the data as benchmark `generic`",
        )
    return organ


def _box(record: Record, box: Box, level: Level) -> dict[str, Any]:
    x1, y1, x2, y2 = box.xyxy
    sides = {"x": x1, "y": y1, "width": x2 - x1, "height": y2 - y1}
    entry: dict[str, Any] = {name: plain_number(value) for name, value in sides.items()} | {"label": box.label or ""}
    if level == "image":
        # A frame here would make the published scorer compare it with the frame of each prediction.
        return entry
    frame = record.images[box.image].frame
    if frame is None:
        raise DataError(
            f"image {record.images[box.image].path!r} has no frame number, and a box lies on it",
            where=f"{record.place}, field images",
            fix="number the slices of a volume when preparing",
        )
    return entry | {"frame": frame}
