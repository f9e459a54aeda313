"""How long scoring takes: as many rows as all of ScintiGround, both profiles, with intervals.

    python -m perf score

Writes a synthetic dataset and a prediction folder to a temporary directory (not measured), then times
what `python -m eval` does with them: reading and joining, the published scorer with its bootstrap, the
corrected profile with intervals and strata, each with its result as JSON. One core where the system
allows to choose. The last line is JSON: seconds per phase and in all, peak resident memory in MiB.
"""

from __future__ import annotations

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.dataset import load_info, write_dataset
from benchmarks.predictions import MANIFEST, PREDICTIONS, Manifest, Prediction, encode_prediction
from benchmarks.schema import Answer, Box, Image, Record, Source
from collators.codecs.base import Invalid
from collators.codecs.registry import get_codec
from eval.evaluate import Profile, evaluate
from eval.run import load_runs
from eval.schema import encode_result

PATIENTS = 2815
GOAL_SECONDS = 10.0
REGIONS = (
    "left ankle",
    "right ankle",
    "left chest",
    "right chest",
    "head",
    "left knee",
    "right knee",
    "pelvis",
    "vertebra",
)
# In the proportions of the release: 13,371 vqa and 12,549 of each other task.
TASKS = ("vqa",) * 13_371 + ("grounding",) * 12_549 + ("grounded_vqa",) * 12_549
CODEC = "scintiground_json"


def run_score(*, rows: int, resamples: int) -> None:
    """Measures and prints.

    Args:
        rows: Number of records.
        resamples: Resamples of the corrected profile; the published bootstrap always takes 2,000.
    """
    with tempfile.TemporaryDirectory() as folder:
        run = _write(Path(folder), rows)
        start = time.perf_counter()
        loaded = load_runs([run])
        seconds = {"load": time.perf_counter() - start}
        profiles: tuple[Profile, ...] = ("published", "corrected")
        for profile in profiles:
            start = time.perf_counter()
            result = evaluate(loaded, profiles=(profile,), resamples=resamples)
            encode_result(result)
            seconds[profile] = time.perf_counter() - start
    total = sum(seconds.values())
    # Linux counts kibibytes, macOS bytes.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 1024**2)
    for name, value in seconds.items():
        print(f"{name:<9} {value:6.2f} s")
    print(f"{'total':<9} {total:6.2f} s (goal: under {GOAL_SECONDS:.0f} s)   peak {peak:.0f} MiB")
    print(
        json.dumps(
            {
                "benchmark": "score",
                "rows": rows,
                "resamples": resamples,
                "seconds": {name: round(value, 3) for name, value in seconds.items()},
                "total_seconds": round(total, 3),
                "peak_mib": round(peak, 1),
            }
        )
    )


def _write(folder: Path, rows: int) -> Path:
    """A dataset and a prediction folder with right, wrong and invalid outputs."""
    rng = random.Random(0)
    records = list(_records(rng, rows))
    data = folder / "data"
    write_dataset(
        data, records, name="synthetic", benchmark="scintiground", reader="perf@1", image_root=data, sources={}
    )
    run = folder / "run"
    run.mkdir()
    (run / PREDICTIONS).write_bytes(b"".join(encode_prediction(_predict(rng, r)) + b"\n" for r in records))
    manifest = Manifest(
        name="synthetic",
        dataset=str(data),
        dataset_hash=load_info(data).content_hash,
        split="test",
        records=rows,
        engine="import",
        codec=CODEC,
    )
    (run / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return run


def _records(rng: random.Random, rows: int) -> Iterator[Record]:
    images = tuple(Image(path=f"{view}.jpg", width=256, height=1024, view=view) for view in ("ANT", "POST"))
    for number in range(rows):
        task = TASKS[number * len(TASKS) // rows]
        region, positive = rng.choice(REGIONS), rng.random() < 0.1
        scope = rng.choice(("ANT", "POST", "BOTH"))
        asked = {"ANT": (0,), "POST": (1,), "BOTH": (0, 1)}[scope]
        label = {"vqa": ("no", "yes"), "grounding": (None, None), "grounded_vqa": ("normal", "abnormal")}[task]
        boxes = () if task == "vqa" else tuple(_box(rng, view, region) for view in asked)
        yield Record(
            id=f"synthetic:{number}",
            benchmark="scintiground",
            split="test",
            task=task,
            group=f"{rng.randrange(PATIENTS)}",
            images=images,
            question="Is there a hot spot?",
            target=Answer(text=None if task == "grounding" else "A sentence.", label=label[positive], boxes=boxes),
            strata={
                "region": region,
                "view_scope": scope,
                "region_level": "metastasis" if positive else "bone_region",
                "label_conflict": "true" if rng.random() < 0.02 else "false",
            },
            source=Source(id=f"synthetic:{number}", file="synthetic", row=number + 1),
        )


def _box(rng: random.Random, image: int, region: str) -> Box:
    x, y = rng.randrange(200), rng.randrange(900)
    return Box(image=image, xyxy=(x, y, x + rng.randrange(20, 50), y + rng.randrange(20, 100)), label=region)


def _predict(rng: random.Random, record: Record) -> Prediction:
    boxes = tuple(
        msgspec.structs.replace(box, xyxy=(x1, y1 + rng.randrange(-min(20, int(y1)), 20), x2, y2 + 20))
        for box in record.target.boxes
        for x1, y1, x2, y2 in [box.xyxy]
    )
    answer = msgspec.structs.replace(record.target, boxes=boxes)
    codec = get_codec(CODEC)
    text = codec.encode(answer, record.ask())
    if rng.random() < 0.02:
        text = text[:-4]
    decoded = codec.decode(text, record.ask())
    if isinstance(decoded, Invalid):
        return Prediction(id=record.id, text=text, invalid=decoded.reason)
    return Prediction(id=record.id, text=text, answer=decoded)
