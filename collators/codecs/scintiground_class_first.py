"""Our own form of the ScintiGround answer: the class first, the sentence last.

In the release's form the class follows a sentence of the model's own, so the class is settled by the words
chosen before it. Here it directly follows the prompt: its probability depends on the question and the images
alone. Fields, values and the gate are those of the release's form; only the order differs.
"""

from __future__ import annotations

import json

from benchmarks.schema import Answer, Ask
from benchmarks.scintiground_text import CLASS_WORDS, multitask_json
from collators.codecs.base import ClosedForm
from collators.codecs.scintiground import ScintigroundJson, official_answer

_ORDER = ("task", "class", "region", "boxes", "answer")
_CLOSING = {"vqa": '","answer":"', "grounded_vqa": '","region":"'}


class ScintigroundClassFirst(ScintigroundJson):
    """The multitask JSON in the order task, class, region, boxes, answer; decoding takes any order."""

    name = "scintiground_class_first"

    def encode(self, answer: Answer, ask: Ask) -> str:
        """Writes the target text.

        Raises:
            CodecError: As `ScintigroundJson.encode`.
        """
        fields = json.loads(multitask_json(official_answer(answer, ask, codec=self.name)))
        return json.dumps({key: fields[key] for key in _ORDER if key in fields}, separators=(",", ":"))

    def closed_form(self, ask: Ask) -> ClosedForm | None:
        """The class directly after the prompt."""
        if ask.task not in CLASS_WORDS:
            return None
        return ClosedForm(
            labels=CLASS_WORDS[ask.task],
            opening=f'{{"task":"{ask.task}","class":"',
            closing=_CLOSING[ask.task],
            text_follows=True,
        )
