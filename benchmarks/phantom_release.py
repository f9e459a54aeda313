"""Writes phantom patients as a folder in the official ScintiGround release form.

The folder holds `multitask.jsonl` (the primary file), `paired_evidence.jsonl`, `metastases.jsonl`,
`patient_splits.jsonl`, `release_summary.json`, `SHA256SUMS.txt` and the images under `bs80k/`. It is
read by the same reader as the real release. Source of the form: scintiground.md, sections 1 and 2.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from tqdm import tqdm

from benchmarks.dataset import write_atomic
from benchmarks.phantom import REGIONS, VIEWS, Hotspot, Patient, PhantomConfig, View, draw_patient
from benchmarks.phantom_wording import FORMS, answer, ask

Row = dict[str, Any]
SCOPES: dict[str, tuple[View, ...]] = {"ANT": ("ANT",), "POST": ("POST",), "BOTH": VIEWS}
TASKS = ("vqa", "grounding", "grounded_vqa")
OUTPUTS = {
    "vqa": {"answer": True, "classification": True, "locations": False},
    "grounding": {"answer": False, "classification": False, "locations": True},
    "grounded_vqa": {"answer": True, "classification": True, "locations": True},
}
INTERACTION = {
    "vqa": "classification",
    "grounding": "localization",
    "grounded_vqa": "localization_and_classification",
}


def write_release(config: PhantomConfig, folder: Path) -> None:
    """Draws all patients of `config` and writes the release folder, images as greyscale JPEG."""
    files: dict[str, list[Row]] = {
        name: [] for name in ("multitask.jsonl", "paired_evidence.jsonl", "metastases.jsonl", "patient_splits.jsonl")
    }
    for view in VIEWS:
        (folder / f"bs80k/wholeBody{view}").mkdir(parents=True, exist_ok=True)
    total = config.train + config.val + config.test
    for number in tqdm(range(total), desc="phantoms", unit="patient"):
        split = "train" if number < config.train else "val" if number < config.train + config.val else "test"
        patient = draw_patient(config, number)
        for view, pixels in patient.images.items():
            Image.fromarray(pixels, "L").save(folder / _image_path(view, number), quality=95)
        files["patient_splits.jsonl"].append({"patient_id": _patient_id(number), "split": split})
        files["multitask.jsonl"] += _rows(config, patient, split)
        files["paired_evidence.jsonl"] += _evidence(config, patient, split)
        files["metastases.jsonl"] += _metastases(patient)
    files["multitask.jsonl"].sort(key=lambda row: (row["split"], row["task_type"], row["task_id"]))
    sums = []
    for name, rows in files.items():
        data = "".join(json.dumps(row, sort_keys=True) + "\n" for row in rows).encode()
        write_atomic(folder / name, data)
        sums.append(f"{hashlib.sha256(data).hexdigest()}  {name}\n")
    summary = {"rows": len(files["multitask.jsonl"]), "patients": total, "synthetic": True}
    write_atomic(folder / "release_summary.json", json.dumps(summary, indent=1).encode())
    write_atomic(folder / "SHA256SUMS.txt", "".join(sums).encode())


def _patient_id(number: int) -> str:
    return str(700_000 + number)


def _image_path(view: View, number: int) -> str:
    return f"bs80k/wholeBody{view}/{_patient_id(number)}.jpg"


def _images(config: PhantomConfig, number: int) -> list[Row]:
    size = [config.width, config.height]
    return [{"view": view, "image": _image_path(view, number), "image_size": size} for view in VIEWS]


def _rows(config: PhantomConfig, patient: Patient, split: str) -> Iterator[Row]:
    """The sampled questions of one patient: the config's number per task, repeats of a question left out."""
    rng = random.Random(f"phantom-rows:{config.seed}:{patient.number}")
    counts = {"vqa": config.vqa, "grounding": config.grounding, "grounded_vqa": config.grounded_vqa}
    seen = set()
    for task in TASKS:
        for _ in range(counts[task]):
            if task != "vqa" and patient.hotspots and rng.random() < config.lesion_share:
                order = rng.randrange(len(patient.hotspots))
                row = _lesion_row(config, patient, split, task, order, rng)
            else:
                region, scope = _choose_region(config, patient, rng)
                row = _pair_row(config, patient, split, task, region, scope)
            if row["task_id"] not in seen:
                seen.add(row["task_id"])
                yield row
    if rng.random() < 1 / 6:
        yield _whole_body_row(config, patient, split, rng.choice(VIEWS))


def _choose_region(config: PhantomConfig, patient: Patient, rng: random.Random) -> tuple[str, str]:
    """A region and scope, abnormal with probability `abnormal_share` (never in a patient without such a spot)."""
    scopes = ("BOTH",) if rng.random() < config.both_share else ("ANT", "POST")
    pairs = [(region, scope) for region in config.regions for scope in scopes]
    abnormal = [pair for pair in pairs if patient.abnormal(pair[0], SCOPES[pair[1]])]
    if rng.random() < config.abnormal_share and abnormal:
        return rng.choice(abnormal)
    return rng.choice([pair for pair in pairs if pair not in abnormal])


def _common(task: str, split: str, prompt: str, *, level: str, label: str, scope: str, malignant: bool) -> Row:
    state = "malignant" if malignant else "benign"
    return {
        "schema_version": "r3-multitask-v1",
        "dataset_name": "wbbs-r2",
        "task_type": task,
        "task_group": "vqa" if task == "vqa" else "vgrounding",
        "prompt": prompt,
        ("query" if task == "grounding" else "question"): prompt,
        "required_outputs": OUTPUTS[task],
        "split": split,
        "label": label,
        "view_scope": scope,
        "region_level": level,
        "grounding_level": level,
        "interaction_type": INTERACTION[task],
        "question_form": "other",
        "answer_mode": "binary" if task == "vqa" else "grounded",
        "effective_region_label": state,
        "label_conflict": False,
        "labels": {"region": label, "classification": state, "schema_version": "r2-labels-v1"},
        "generation_source": "phantom",
        "language": "en",
    }


def _finish(row: Row, config: PhantomConfig, targets: list[Row], *, malignant: bool) -> Row:
    """Adds answer and boxes in the fields of the row's task."""
    task = row["task_type"]
    if task != "grounding":
        row["answer"] = answer(
            FORMS[config.wording],
            positive=malignant,
            family=row["template_family"],
            region=row["label"],
            scope=row["view_scope"],
            task_id=row["task_id"],
            evidence=row["evidence_id"],
        )
        words = ("yes", "no") if task == "vqa" else ("abnormal", "normal")
        row["answer_label"] = words[0] if malignant else words[1]
    if task == "grounding":
        row["targets"] = targets
    elif task == "grounded_vqa":
        row["evidence_targets"] = targets
    if task != "vqa":
        row["target"] = {
            "region": {"label": row["label"]},
            "classification": {"label": "malignant" if malignant else "benign"},
            "locations": targets,
            "schema_version": "r2-target-v1",
        }
    return row


def _pair_row(config: PhantomConfig, patient: Patient, split: str, task: str, region: str, scope: str) -> Row:
    malignant = patient.abnormal(region, SCOPES[scope])
    evidence = f"wbbs:pair:{_patient_id(patient.number)}:{region.replace(' ', '_')}"
    task_id = f"{evidence}:{task.replace('_', '-')}:{scope.lower()}"
    family = f"anatomy_{task}_{scope}".lower()
    wording = FORMS[config.wording]
    index, prompt = ask(wording, wording.questions(task), family, region, scope, task_id, evidence, None)
    row = _common(task, split, prompt, level="bone_region", label=region, scope=scope, malignant=malignant)
    row |= {"task_id": task_id, "evidence_id": evidence, "images": _images(config, patient.number)}
    row |= {"template_family": family, "template_id": f"{family}:{index}", "surface_form_id": str(index)}
    targets = [{"view": view, "bbox": list(patient.regions[region][view])} for view in SCOPES[scope]]
    return _finish(row, config, targets, malignant=malignant)


def _lesion_row(config: PhantomConfig, patient: Patient, split: str, task: str, order: int, rng: random.Random) -> Row:
    spot = patient.hotspots[order]
    view = rng.choice(sorted(spot.boxes))
    spot_id = f"bs80k:nidus:{_patient_id(patient.number)}:{view}:{order}"
    task_id = f"{spot_id}:lesion-{task.replace('_', '-')}"
    family = f"lesion_{task}_{view}".lower()
    evidence = f"wbbs:pair:{_patient_id(patient.number)}:{spot.region.replace(' ', '_')}"
    wording = FORMS[config.wording]
    index, prompt = ask(wording, wording.lesion, family, spot.region, view, task_id, evidence, spot_id)
    row = _common(task, split, prompt, level="metastasis", label=spot.region, scope=view, malignant=spot.abnormal)
    row |= {"task_id": task_id, "evidence_id": evidence, "images": _images(config, patient.number)}
    row |= {"template_family": family, "template_id": f"{family}:{index}", "surface_form_id": str(index)}
    row |= {"metastasis_id": spot_id, "source_id": spot_id, **_lesion_class(spot)}
    return _finish(row, config, [{"view": view, "bbox": list(spot.boxes[view])}], malignant=spot.abnormal)


def _whole_body_row(config: PhantomConfig, patient: Patient, split: str, view: View) -> Row:
    malignant = any(patient.abnormal(region, (view,)) for region in REGIONS)
    task_id = f"wbbs:patient:{_patient_id(patient.number)}:whole-body:vqa:{view.lower()}"
    family = f"whole_body_vqa_{view}".lower()
    wording = FORMS[config.wording]
    index, prompt = ask(wording, wording.vqa, family, "whole_body", view, task_id, None, None)
    row = _common("vqa", split, prompt, level="whole_body", label="whole_body", scope=view, malignant=malignant)
    image = next(item for item in _images(config, patient.number) if item["view"] == view)
    row |= {"task_id": task_id, "evidence_id": None, "images": [image], "patient_id": _patient_id(patient.number)}
    row |= {"template_family": family, "template_id": f"{family}:{index}", "surface_form_id": str(index)}
    row |= {"diagnosis": "abnormal" if malignant else "normal", "localization_mode": "image_level", "targets": []}
    return _finish(row, config, [], malignant=malignant)


def _lesion_class(spot: Hotspot) -> Row:
    return {
        "lesion_class": "bone_metastasis" if spot.abnormal else "non_metastatic_hotspot",
        "source_hotspot_label": "Abnormal" if spot.abnormal else "Normal",
    }


def _evidence(config: PhantomConfig, patient: Patient, split: str) -> Iterator[Row]:
    """One row per region: the front and back pair."""
    for region in REGIONS:
        state = {view: "abnormal" if patient.abnormal(region, (view,)) else "normal" for view in VIEWS}
        images = [
            image | {"bbox": list(patient.regions[region][image["view"]]), "record_id": f"{image['view']}:{region}"}
            for image in _images(config, patient.number)
        ]
        yield {
            "evidence_id": f"wbbs:pair:{_patient_id(patient.number)}:{region.replace(' ', '_')}",
            "patient_id": _patient_id(patient.number),
            "region": region,
            "split": split,
            "images": images,
            "diagnosis_by_view": state,
            "source_labels": state,
            "pair_diagnosis": "abnormal" if "abnormal" in state.values() else "normal",
        }


def _metastases(patient: Patient) -> Iterator[Row]:
    for order, spot in enumerate(patient.hotspots):
        for view, box in spot.boxes.items():
            yield {
                "metastasis_id": f"bs80k:nidus:{_patient_id(patient.number)}:{view}:{order}",
                "patient_id": _patient_id(patient.number),
                "view": view,
                "bbox": list(box),
                "region": spot.region,
                "assignment": "unique_region",
                **_lesion_class(spot),
            }
