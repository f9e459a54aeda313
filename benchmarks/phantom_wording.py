"""Question and answer forms of the phantom, in our own words.

Like the release, every (task, scope) family has eight question forms and every answer polarity six
verdicts; which one a row gets is a hash of its family and ids (scintiground.md, "Wording choice"). Answers
begin with the views and the region in the spelling of the answer's JSON, then one word that decides: a tiny
model that has learnt to box `left_knee` in `ANT` knows where to look, and has one place to decide at. That
word is the same in both sets: a word that a tiny base has never written cannot be learnt with its head frozen.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

SPOKEN = {
    "head": "head",
    "right chest": "right chest region",
    "left chest": "left chest region",
    "vertebra": "vertebral column",
    "pelvis": "pelvis",
    "right knee": "right knee joint",
    "left knee": "left knee joint",
    "right ankle": "right ankle joint",
    "left ankle": "left ankle joint",
    "whole_body": "whole body",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Question forms with `{region}` and `{where}`; the answer form with `{region}`, `{views}` and `{verdict}`."""

    scope: dict[str, str]
    vqa: tuple[str, ...]
    grounding: tuple[str, ...]
    grounded_vqa: tuple[str, ...]
    lesion: tuple[str, ...]
    answer: str
    positive: tuple[str, ...]
    negative: tuple[str, ...]

    def questions(self, family: str) -> tuple[str, ...]:
        """Question forms of a family (`vqa`, `grounding`, `grounded_vqa` or `lesion`)."""
        forms = {"vqa": self.vqa, "grounding": self.grounding, "grounded_vqa": self.grounded_vqa, "lesion": self.lesion}
        return forms[family]


FORMS: dict[str, Wording] = {
    "clinic": Wording(
        scope={"ANT": "in the anterior view", "POST": "in the posterior view", "BOTH": "in both views"},
        vqa=(
            "Is uptake in the {region} increased {where}?",
            "Does the {region} show a hot focus {where}?",
            "Would you call the {region} abnormal {where}?",
            "Any pathological uptake in the {region} {where}?",
            "{where}, is the {region} abnormal?",
            "Is there a suspicious focus in the {region} {where}?",
            "Does tracer collect abnormally in the {region} {where}?",
            "Do you see increased uptake in the {region} {where}?",
        ),
        grounding=(
            "Where is the {region} {where}?",
            "Mark the {region} {where}.",
            "Give the box of the {region} {where}.",
            "Locate the {region} {where}.",
            "Outline the {region} {where} with a box.",
            "{where}, find the {region}.",
            "Show the extent of the {region} {where}.",
            "Which area holds the {region} {where}?",
        ),
        grounded_vqa=(
            "Judge the {region} {where} and mark it.",
            "What does the {region} look like {where}, and where is it?",
            "Box the {region} {where} and grade its uptake.",
            "Describe uptake in the {region} {where} with its location.",
            "{where}, locate the {region} and say whether it is normal.",
            "Find the {region} {where} and classify it.",
            "Is the {region} normal {where}? Give its box too.",
            "Assess and outline the {region} {where}.",
        ),
        lesion=(
            "Mark the spot in the {region} {where}.",
            "Where is the focus within the {region} {where}?",
            "Give the box of the hot spot in the {region} {where}.",
            "Locate the focal uptake of the {region} {where}.",
            "{where}, find the focus in the {region}.",
            "Outline the spot of the {region} {where}.",
            "Show the focus lying in the {region} {where}.",
            "Box the focal finding in the {region} {where}.",
        ),
        answer="{views}/{region}: {verdict}",
        positive=(
            "positive.",
            "positive, a hot focus.",
            "positive, increased uptake.",
            "positive, a pathological focus.",
            "positive, suspicious.",
            "positive, focal uptake.",
        ),
        negative=(
            "negative.",
            "negative, no hot focus.",
            "negative, normal uptake.",
            "negative, unremarkable.",
            "negative, harmless.",
            "negative, even uptake.",
        ),
    ),
    "report": Wording(
        scope={"ANT": "from the front", "POST": "from behind", "BOTH": "from the front and from behind"},
        vqa=(
            "Hot {region} {where}?",
            "Seen {where}, does the {region} contain a lesion?",
            "Can a lesion be made out in the {region} {where}?",
            "Is a bright area visible at the {region} {where}?",
            "Look at the {region} {where}: is it diseased?",
            "Does anything light up in the {region} {where}?",
            "Should the {region} be reported as positive {where}?",
            "Check the {region} {where}. Positive?",
        ),
        grounding=(
            "Draw a frame around the {region} {where}.",
            "Point out the {region} {where}.",
            "Coordinates of the {region} {where}, please.",
            "The {region} {where}: give its position.",
            "Frame the {region} as seen {where}.",
            "At which position does the {region} lie {where}?",
            "Enclose the {region} {where}.",
            "Return the rectangle of the {region} {where}.",
        ),
        grounded_vqa=(
            "Report on the {region} {where} with a frame.",
            "Frame the {region} {where} and decide if it is diseased.",
            "State position and condition of the {region} {where}.",
            "Rate the {region} {where} and give its rectangle.",
            "Condition of the {region} {where}? Add the frame.",
            "Enclose the {region} {where} and comment on it.",
            "Comment on the {region} seen {where} and point it out.",
            "Decide on the {region} {where}; return its rectangle.",
        ),
        lesion=(
            "Draw a frame around the bright area at the {region} {where}.",
            "Point out the lesion of the {region} {where}.",
            "Coordinates of the bright area in the {region} {where}, please.",
            "Frame what lights up in the {region} {where}.",
            "Enclose the lesion at the {region} {where}.",
            "Return the rectangle of the lesion in the {region} {where}.",
            "At which position does the {region} light up {where}?",
            "The bright area of the {region} {where}: give its position.",
        ),
        answer="{views}/{region}: {verdict}",
        positive=(
            "positive.",
            "positive, a lesion.",
            "positive, it lights up.",
            "positive and diseased.",
            "positive, a bright area.",
            "positive, the part is affected.",
        ),
        negative=(
            "negative.",
            "negative, no lesion.",
            "negative, it stays dim.",
            "negative and healthy.",
            "negative, only a dim area.",
            "negative, the part is spared.",
        ),
    ),
}


def choose(forms: tuple[str, ...], family: str, *ids: str | None) -> tuple[int, str]:
    """Picks a form by the first 8 bytes (big endian) of SHA-256 of `family|id|id|...` modulo their number."""
    key = "|".join((family, *(str(part) for part in ids)))
    index = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") % len(forms)
    return index, forms[index]


def ask(
    wording: Wording, forms: tuple[str, ...], family: str, region: str, scope: str, *ids: str | None
) -> tuple[int, str]:
    """The chosen question with region and scope filled in, first letter upper case."""
    index, form = choose(forms, family, *ids)
    return index, _capital(form.format(region=SPOKEN[region], where=wording.scope[scope]))


def answer(
    wording: Wording, *, positive: bool, family: str, region: str, scope: str, task_id: str, evidence: str | None
) -> str:
    """The chosen answer; the family name gets `:answer` appended, as in the release."""
    verdicts = wording.positive if positive else wording.negative
    _, verdict = choose(verdicts, f"{family}:answer", task_id, evidence, None)
    views = {"ANT": "ANT", "POST": "PST", "BOTH": "ANT+PST"}[scope]
    return wording.answer.format(region=region.replace(" ", "_"), views=views, verdict=verdict)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
