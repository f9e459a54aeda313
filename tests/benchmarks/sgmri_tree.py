"""A small SGMRI-VQA release made by hand, as the authors' repository lays it out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from PIL import Image

Row = dict[str, Any]
KNEE, BRAIN = "file9990001", "file_brain_AXFLAIR_200_9990002"


def image_row(**changes: Any) -> Row:
    """A localization question on frame 3 of the knee volume."""
    return {
        "volume_id": KNEE,
        "slice_num": 3,
        "modality": "knee",
        "image_path": f"knee_val_labeled_raw/{KNEE}/{KNEE}_slice_003.png",
        "level": "slice",
        "task": "localization",
        "type": "closed_ended",
        "question": "Where is the effusion?",
        "answer": "In the lateral compartment at <bbx>[60,90,40,22]</bbx>.",
        "reasoning": "Bright fluid on frame 3 at <bbx>[60,90,40,22]</bbx>.",
        "ground_truth": {
            "labels": ["Joint Effusion"],
            "diagnosis": ["Joint Effusion"],
            "bboxes": [{"x": 60, "y": 90, "width": 40, "height": 22, "label": "Joint Effusion "}],
        },
    } | changes


def volume_row(**changes: Any) -> Row:
    """A counting question on the brain volume."""
    return {
        "volume_id": BRAIN,
        "modality": "FLAIR",
        "num_slices": 4,
        "level": "volume",
        "step": 0,
        "task": "counting",
        "type": "closed_ended",
        "question": "How many abnormal findings does this volume show?",
        "answer": "2",
        "reasoning": "Frame 2: [80,70,9,8] (Edema).",
        "ground_truth": {"final_diagnosis": ["Edema"]},
    } | changes


def write_tree(
    folder: Path,
    *,
    knee_image: list[Row] | None = None,
    brain_volume: list[Row] | None = None,
    knee_volume: list[Row] | None = None,
    metadata: bool = True,
    split: str = "val",
    slices: int = 4,
) -> Path:
    """Writes the release: files of questions, metadata of both organs, and 4 slices of 128 x 128 pixels a volume."""
    questions = {
        ("knee", "image"): knee_image if knee_image is not None else [image_row()],
        ("brain", "volume"): brain_volume if brain_volume is not None else [volume_row()],
        ("knee", "volume"): knee_volume or [],
    }
    for (organ, level), rows in questions.items():
        path = (
            folder / f"data_generation/qa_reasoning_data/{organ}/gpt4o_{organ}_{split}_{level}_qa_{level}_qa_pairs.json"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(rows))
    if metadata:
        box = {"x": 80, "y": 70, "width": 9, "height": 8, "label": "Edema"}
        brain = {"volume_id": BRAIN, "final_diagnosis": ["Edema"], "slices": [{"slice": 2, "bounding_boxes": [box]}]}
        knee = {"volume_id": KNEE, "slices": [{"slice": 1, "bounding_boxes": [{**box, "label": "Meniscus Tear"}]}]}
        for organ, content in (("brain", {"FLAIR": {BRAIN: brain}, "T1": {}}), ("knee", {KNEE: knee})):
            path = folder / f"data_processing/{organ}/{organ}_{split}_volumes.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(content))
    part = "train" if split == "train" else "val"
    for place, volume in ((f"{part}_labeled_raw_by_modality/FLAIR", BRAIN), (f"knee_{part}_labeled_raw", KNEE)):
        target = folder / "data" / place / volume
        target.mkdir(parents=True, exist_ok=True)
        for number in range(1, slices + 1):
            Image.new("L", (128, 128), 10 * number).save(target / f"{volume}_slice_{number:03d}.png")
    return folder
