"""Questions about one phantom volume, as rows of the official SGMRI-VQA files.

Source of the rows' form: sgmri.md, section 1. As there, counting means boxes on all frames for brain and types of
findings for knee, the image level's truth is called `diagnosis` and the volume level's `final_diagnosis`.
"""

from __future__ import annotations

import random
from typing import Any

from benchmarks.phantom_mri import KINDS, MriConfig, Volume
from benchmarks.phantom_mri_anatomy import XYWH
from benchmarks.phantom_mri_wording import FORMS, Forms
from benchmarks.sgmri import Level

Row = dict[str, Any]
NORMAL = "Normal"
# Frame -> label and box of what the release says to be on it.
Frames = dict[int, list[tuple[str, XYWH]]]


def frame_of(config: MriConfig, volume: Volume, index: int) -> int:
    """The frame that the questions give to slice `index`, from 0, of the annotation table."""
    return index if config.knee_fault and volume.organ == "knee" else index + 1


def boxed_frames(config: MriConfig, volume: Volume) -> Frames:
    """What the questions say to be where; frames without a finding are left out."""
    found = {frame_of(config, volume, index): volume.on_slice(index) for index in range(len(volume.pixels))}
    return {frame: items for frame, items in found.items() if items}


def png_path(volume: Volume, split: str, frame: int) -> str:
    """Path of a slice relative to the data root."""
    folder = (
        f"knee_{split}_labeled_raw" if volume.organ == "knee" else f"{split}_labeled_raw_by_modality/{volume.modality}"
    )
    return f"{folder}/{volume.name}/{volume.name}_slice_{frame:03d}.png"


def image_rows(config: MriConfig, volume: Volume, split: str) -> list[Row]:
    """Five questions about each of the chosen slices: most have a finding, as in the release."""
    rng = random.Random(f"phantom-mri-image:{config.seed}:{volume.name}")
    boxed = boxed_frames(config, volume)
    empty = [frame for frame in range(1, len(volume.pixels) + 1) if frame not in boxed]
    pools = [rng.sample(sorted(boxed), len(boxed)), rng.sample(empty, len(empty))]
    rows = []
    for _ in range(config.slices):
        first = bool(rng.random() < config.normal_slices)
        pool = pools[first] or pools[not first]
        if not pool:
            break
        frame = pool.pop()
        items = boxed.get(frame, [])
        writer = _Writer(config, volume, "image", {frame: items} if items else {}, rng)
        truth = {
            "labels": writer.labels or [NORMAL],
            "diagnosis": writer.labels or [NORMAL],
            "bboxes": [_listed(label, box) for label, box in items],
        }
        place = {"slice_num": frame, "image_path": png_path(volume, split, frame), "level": "slice"}
        for question in (*writer.shared(), *writer.choice("diagnosis")):
            rows.append({**writer.common(), **place, **question, "ground_truth": truth})
    return rows


def volume_rows(config: MriConfig, volume: Volume) -> list[Row]:
    """Five questions about a volume."""
    rng = random.Random(f"phantom-mri-volume:{config.seed}:{volume.name}")
    writer = _Writer(config, volume, "volume", boxed_frames(config, volume), rng)
    # The knee's tables have a study-level row on volumes without a finding, and its labels are not filtered.
    truth: Row = {"final_diagnosis": writer.labels or ([] if volume.organ == "brain" else ["artifact"])}
    if config.volume_boxes:
        truth["bboxes"] = [
            _listed(label, box) | {"frame": frame}
            for frame, items in sorted(writer.frames.items())
            for label, box in items
        ]
    place = {"num_slices": len(volume.pixels), "level": "volume", "step": 0}
    return [
        {**writer.common(), **place, **question, "ground_truth": truth}
        for question in (*writer.shared(), *writer.counting())
    ]


class _Writer:
    """Writes questions and answers about one slice or volume."""

    def __init__(self, config: MriConfig, volume: Volume, level: Level, frames: Frames, rng: random.Random) -> None:
        self.config, self.volume, self.level, self.frames, self.rng = config, volume, level, frames, rng
        self.forms: Forms = FORMS[config.wording]
        self.kinds = [kind.label for kind in KINDS[volume.organ][: config.kinds]]
        self.labels = sorted({label for items in frames.values() for label, _ in items})

    def common(self) -> Row:
        return {"volume_id": self.volume.name, "modality": self.volume.modality}

    def shared(self) -> list[Row]:
        """The tasks of both levels."""
        return [*self._detection(), *self._localization(), *self.choice("classification"), *self._captioning()]

    def _row(
        self, task: str, kind: str, forms: tuple[str, ...], answer: str, finding: str = "", options: str = ""
    ) -> Row:
        question = self.rng.choice(forms).format(place=self.forms.place[self.level], finding=finding)
        text = question[0].upper() + question[1:] + options
        return {"task": task, "type": kind, "question": text, "answer": answer, "reasoning": self._reasoning()}

    def _reasoning(self) -> str:
        if self.config.style == "short":
            return ""
        if not self.frames:
            return f"No part of the {self.forms.place[self.level]} differs from its surroundings."
        parts = [
            (f"[{','.join(map(str, box))}] ({label})" if self.level == "volume" else f"{label} at {_tag(box)}")
            for _, items in sorted(self.frames.items())
            for label, box in items
        ]
        if self.level == "image":
            return "; ".join(parts) + "."
        numbers = [frame for frame, items in sorted(self.frames.items()) for _ in items]
        return "; ".join(f"Frame {frame}: {part}" for frame, part in zip(numbers, parts, strict=True)) + "."

    def _detection(self) -> list[Row]:
        if self.rng.random() < 0.25:
            return [self._row("detection", "closed_ended", self.forms.any_finding, _yes(bool(self.labels)))]
        absent = [label for label in self.kinds if label not in self.labels]
        missing = not self.labels or bool(absent and self.rng.random() < self.config.absent_share)
        finding = self.rng.choice(absent if missing else self.labels)
        spoken = finding if self.config.style == "short" else f"evidence of {finding.lower()}"
        return [self._row("detection", "closed_ended", self.forms.one_finding, _yes(not missing), spoken)]

    def _localization(self) -> list[Row]:
        kind = "open_ended" if self.volume.organ == "brain" else "closed_ended"
        answer = self._places() or "No finding."
        if self.labels and self.config.style == "short":
            answer = self.forms.located.format(findings=" and ".join(self.labels), places=answer)
        return [self._row("localization", kind, self.forms.where, answer)]

    def _places(self) -> str:
        """`Frame 3: <bbx>[...]</bbx>, <bbx>[...]</bbx>; Frame 4: ...`; a slice needs no frame."""
        texts = []
        for frame, items in sorted(self.frames.items()):
            boxes = ", ".join(
                _tag(box) if self.config.style == "short" else f"{_tag(box)} ({label})" for label, box in items
            )
            texts.append(boxes if self.level == "image" else f"Frame {frame}: {boxes}")
        return "; ".join(texts)

    def counting(self) -> list[Row]:
        """Boxes on all frames for brain, types of findings for knee."""
        if self.volume.organ == "brain":
            boxes = sum(len(items) for items in self.frames.values())
            return [self._row("counting", "closed_ended", self.forms.boxes, str(boxes))]
        return [self._row("counting", "closed_ended", self.forms.types, str(len(self.labels)))]

    def choice(self, task: str) -> list[Row]:
        """A choice among four at most, one or several right; brain rows list the options a second time.

        In `full` style some questions have no options: a yes/no question, or one for the name.
        """
        right = self.labels or [NORMAL]
        diagnosis = task == "diagnosis"
        if self.config.style == "full" and len(right) == 1 and self.rng.random() < 0.3:
            if self.rng.random() < 0.5:
                return [
                    self._row(task, "open_ended", self.forms.diagnosis if diagnosis else self.forms.single, right[0])
                ]
            shown = self.rng.choice(self.kinds)
            return [
                self._row(
                    task, "closed_ended", self.forms.one_finding, _yes(shown in right), f"evidence of {shown.lower()}"
                )
            ]
        options = self._options(right)
        letters = dict(zip("ABCD", options, strict=False))
        answer = ", ".join(letter for letter, option in letters.items() if option in right)
        listed = "".join(f"\n{letter}) {option}" for letter, option in letters.items())
        several = len(right) > 1 or self.rng.random() < 0.25
        kind = "multiple_choice" if several else "single_choice"
        names = ("diagnoses" if several else "diagnosis") if diagnosis else ("several" if several else "single")
        forms: tuple[str, ...] = getattr(self.forms, names)
        row = self._row(task, kind, forms, answer, options=listed)
        return [row | {"choices": letters}] if self.volume.organ == "brain" else [row]

    def _options(self, right: list[str]) -> list[str]:
        """The right ones and others, four in all."""
        every = [*self.kinds, NORMAL]
        wrong = [option for option in every if option not in right]
        chosen = [*right, *self.rng.sample(wrong, min(len(wrong), max(4 - len(right), 0)))][:4]
        return self.rng.sample(chosen, len(chosen)) if self.config.shuffle_options else sorted(chosen, key=every.index)

    def _captioning(self) -> list[Row]:
        place = self.forms.place[self.level]
        if self.config.style == "short":
            text = self.forms.described.format(place=place, findings=" and ".join(self.labels) or "no finding")
        elif not self.labels:
            text = f"This {place} shows no abnormal finding."
        else:
            text = f"This {place} shows {' and '.join(self.labels).lower()}: {self._places()}."
        return [self._row("captioning", "open_ended", self.forms.caption, text)]


def _listed(label: str, box: XYWH) -> Row:
    return dict(zip(("x", "y", "width", "height"), box, strict=True)) | {"label": label}


def _tag(box: XYWH) -> str:
    return f"<bbx>[{','.join(map(str, box))}]</bbx>"


def _yes(value: bool) -> str:  # noqa: FBT001 - the truth to be said
    return "Yes" if value else "No"
