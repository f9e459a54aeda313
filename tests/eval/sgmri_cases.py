"""Small SGMRI-VQA records and predictions."""

from __future__ import annotations

from benchmarks.predictions import Prediction
from benchmarks.schema import XYXY, Answer, Box, Image, Record, Source
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec
from eval.corrected_sgmri.scorer import SgmriScorer
from eval.measure import make_sample, measure

SCORER = SgmriScorer()
FRAMES, WIDTH, HEIGHT = 5, 64, 48
HERE: XYXY = (10.0, 10.0, 20.0, 20.0)
THERE: XYXY = (30.0, 30.0, 40.0, 40.0)


def boxes(*places: tuple[int, XYXY], label: str | None = "Edema") -> tuple[Box, ...]:
    """Boxes at (index of the image, corners)."""
    return tuple(Box(image=image, xyxy=xyxy, label=label) for image, xyxy in places)


def record(
    number: int | str,
    task: str = "volume_localization",
    text: str = "In the left hemisphere.",
    *,
    answer_type: str = "closed_ended",
    label: str | None = None,
    choices: tuple[str, ...] = (),
    target: tuple[Box, ...] | None = None,
    question: str = "Where is the finding?",
    organ: str = "brain",
    group: str | None = None,
) -> Record:
    """A record of one slice or of a volume of five; box tasks have a box on the second frame unless told otherwise."""
    level, _, official = task.partition("_")
    frames = range(1, FRAMES + 1) if level == "volume" else [3]
    boxed = official in ("localization", "captioning")
    if target is None:
        target = boxes((1 if level == "volume" else 0, HERE)) if boxed else ()
    return Record(
        id=f"s{number}",
        benchmark="sgmri",
        split="test",
        task=task,
        group=group or f"v{number}",
        images=tuple(Image(path=f"{organ}/{f}.png", width=WIDTH, height=HEIGHT, frame=f) for f in frames),
        question=question,
        choices=choices,
        answer_type=answer_type,
        target=Answer(text=text, label=label, boxes=target, reasoning="Bright fluid."),
        strata={"organ": organ, "modality": "FLAIR", "level": level, "answer_type": answer_type},
        source=Source(id=f"s{number}", file="rows.json", row=1),
    )


def closed(number: int | str, text: str, task: str = "image_detection", **changes: object) -> Record:
    """A closed question; its label as the reader gives it."""
    kind = changes.get("answer_type", "closed_ended")
    label = text if text in ("Yes", "No") or text.isdecimal() else None
    if kind == "single_choice":
        label = text.strip("()")
    choices: tuple[str, ...] = ("Yes", "No") if label in ("Yes", "No") else ()
    if kind in ("single_choice", "multiple_choice"):
        choices = ("A", "B", "C", "D")
    return record(number, task, text, **({"label": label, "choices": choices, "target": ()} | changes))


def answered(asked: Record, text: str | None = None, *, given: tuple[Box, ...] | None = None) -> Prediction:
    """A decoded answer; what is not given is that of the target."""
    answer = Answer(
        text=asked.target.text if text is None else text,
        boxes=asked.target.boxes if given is None else given,
    )
    return Prediction(id=asked.id, text="(decoded)", answer=answer)


def perfect(asked: Record) -> Prediction:
    """The target as the answer."""
    return Prediction(id=asked.id, text="(decoded)", answer=asked.target)


def invalid(asked: Record, **fields: object) -> Prediction:
    """An output that no codec reads."""
    return Prediction(**({"id": asked.id, "text": "?", "invalid": "invalid_json"} | fields))


def predict(asked: Record, text: str, codec: str = "sgmri_json") -> Prediction:
    """The row that `infer` would write for a text."""
    decoded = get_codec(codec).decode(text, asked.ask())
    if isinstance(decoded, Invalid):
        return Prediction(id=asked.id, text=text, invalid=decoded.reason)
    return Prediction(id=asked.id, text=text, answer=decoded)


def score(records, predictions, codec="sgmri_json", marks=None):
    """Metric values by (task, metric), and the scored rows."""
    scored = SCORER.score(records, predictions, get_codec(codec), marks=marks)
    labels = {task: SCORER.labels(task, records) for task in dict.fromkeys(r.task for r in records)}
    sample = make_sample(records, labels, SCORER.accuracy, resamples=100, seed=0)
    return {(m.task, m.metric): m for m in measure(scored, sample)}, scored.strict


def row(asked, prediction, **options):
    """The scored row of one record."""
    return score([asked], [prediction], **options)[1][0]
