"""How `phantom-mri` asks: two sets of questions, so that a model trained on one has to learn the other."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Forms:
    """Question forms by what is asked; `{finding}` is filled in, `{place}` becomes `scan` in words of the level.

    Attributes:
        place: Level -> what the forms call it.
        any_finding: Is there anything?
        one_finding: Is there such a finding?
        where: Where are the findings?
        boxes: How many boxes are there on all frames (brain)?
        types: How many different types are there (knee)?
        single: Which finding is it? Options follow, one right.
        several: Which findings are there? Options follow, some right.
        diagnosis: The same as `single`, for the diagnosis.
        diagnoses: The same as `several`, for the diagnoses.
        caption: A description, please.
        located: Short answer to `where`, with `{findings}` and the boxes as `{places}`.
        described: Short answer to `caption`, with `{findings}`.
    """

    place: dict[str, str]
    any_finding: tuple[str, ...]
    one_finding: tuple[str, ...]
    where: tuple[str, ...]
    boxes: tuple[str, ...]
    types: tuple[str, ...]
    single: tuple[str, ...]
    several: tuple[str, ...]
    diagnosis: tuple[str, ...]
    diagnoses: tuple[str, ...]
    caption: tuple[str, ...]
    located: str
    described: str


FORMS: Final = MappingProxyType(
    {
        "clinic": Forms(
            place={"image": "slice", "volume": "volume"},
            any_finding=("Is this {place} abnormal?", "Does this {place} show any abnormality?"),
            one_finding=(
                "Is there {finding} in this {place}?",
                "Does this {place} show {finding}?",
                "Can {finding} be seen in this {place}?",
            ),
            where=(
                "Where are the findings in this {place}?",
                "Locate all abnormalities of this {place}.",
                "Mark every finding in this {place}.",
            ),
            boxes=(
                "How many findings does this {place} show, counted on every frame?",
                "Count the findings over all frames of this {place}.",
            ),
            types=(
                "How many different types of findings does this {place} show?",
                "Count the types of findings in this {place}.",
            ),
            single=("Which finding does this {place} show?", "Classify this {place}."),
            several=("Which findings does this {place} show? Select all that apply.",),
            diagnosis=("What is the most likely diagnosis?", "Which diagnosis fits this {place}?"),
            diagnoses=("Which diagnoses fit this {place}? Select all that apply.",),
            caption=("Describe this {place}.", "Summarize the findings of this {place}."),
            located="{findings}: {places}",
            described="This {place} shows {findings}.",
        ),
        "report": Forms(
            place={"image": "picture", "volume": "series"},
            any_finding=("Anything wrong in the {place}?", "Should the {place} be called diseased?"),
            one_finding=(
                "{finding}: present in the {place}?",
                "Look for {finding} in the {place}. Found?",
                "Would you report {finding} for the {place}?",
            ),
            where=(
                "Give the box of each lesion in the {place}.",
                "Outline what is wrong in the {place}.",
                "Coordinates of all lesions of the {place}, please.",
            ),
            boxes=("Number of boxes in the {place}, frame by frame?", "Add up the boxes of all frames."),
            types=("Number of kinds of lesions in the {place}?", "Add up the kinds of lesions."),
            single=("What does the {place} contain?", "Choose what the {place} contains."),
            several=("What does the {place} contain? Choose all that are right.",),
            diagnosis=("Choose a diagnosis for the {place}.", "How would you call this {place}?"),
            diagnoses=("Choose all diagnoses that are right for the {place}.",),
            caption=("Write a report of the {place}.", "Report on the {place}."),
            located="{places}",
            described="{findings}",
        ),
    }
)
