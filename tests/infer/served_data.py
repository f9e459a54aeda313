"""A small SGMRI-VQA dataset, and runs over it with a model on a local server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image as PILImage

from benchmarks.chat import Endpoint
from benchmarks.prepare import prepare
from infer.run import Request
from tests.benchmarks.sgmri_tree import image_row, volume_row, write_tree
from tests.chat_server import ChatServer

KEY = "sk-secret-of-the-test"
RECIPE = "sgmri/chat_zero_shot"


def write_sgmri(folder: Path, count: int) -> Path:
    """`count` questions about single slices and two about a volume of four, all pixels different; the dataset's folder."""
    rows = [
        image_row(question=f"Where is effusion {n}?", slice_num=n % 4 + 1, image_path="") for n in range(1, count + 1)
    ]
    for row in rows:
        row["image_path"] = image_row()["image_path"].replace("003", f"{row['slice_num']:03d}")
    volumes = [volume_row(), volume_row(task="detection", question="Is any finding present?", answer="Yes")]
    release = write_tree(folder / "release", knee_image=rows, brain_volume=volumes)
    noise = np.random.default_rng(0)
    for path in sorted(release.rglob("*.png")):
        PILImage.fromarray(noise.integers(0, 256, (128, 128), dtype=np.uint8)).save(path)
    prepare("sgmri", release, folder / "data")
    return folder / "data"


def request(server: ChatServer, data: Path, out: Path, *overrides: str, **changes: Any) -> Request:
    """A run over the test split; settings of the endpoint and of the request may be changed by name."""
    endpoint = {"model": "m", "url": server.url, "key": KEY, "retries": 2, "seconds": 20.0}
    endpoint |= {name: changes.pop(name) for name in [*endpoint, "price"] if name in changes}
    settings = {"weights": None, "data": data, "split": "test", "out": out, "recipe": RECIPE, "overrides": overrides}
    return Request(**{**settings, **changes}, endpoint=Endpoint(**endpoint))
