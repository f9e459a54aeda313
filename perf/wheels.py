"""The packages that `perf.gpu` needs beside Python and torch with what torch itself needs.

`make gpu-wheels` collects them for a machine without a network. torchvision is not among them (`perf.gpu_inputs` does
without), nor is bitsandbytes, which alone is more than the limit: 4 bits are measured where the machine has it.
"""

from __future__ import annotations

from pathlib import Path

from perf.rounds import MeasurementError

WHEELS = (
    "accelerate",
    "annotated-types",
    "anyio",
    "h11",
    "httpcore2",
    "httpx2",
    "huggingface-hub",
    "idna",
    "msgspec",
    "numpy",
    "packaging",
    "peft",
    "pillow",
    "psutil",
    "pydantic",
    "pydantic-core",
    "pyyaml",
    "regex",
    "safetensors",
    "tokenizers",
    "tqdm",
    "transformers",
    "truststore",
    "typing-inspection",
)
LIMIT = 50_000_000  # bytes of all


def check_wheels(folder: Path) -> int:
    """Bytes of the wheels in a folder.

    Raises:
        MeasurementError: One is missing, there is another one, or all are over the limit.
    """
    files = sorted(folder.glob("*.whl"))
    names = [file.name.split("-")[0].lower().replace("_", "-") for file in files]
    if sorted(names) != sorted(WHEELS):
        wrong = sorted(set(names) ^ set(WHEELS)) or ["a package in two versions"]
        raise MeasurementError(
            f"the wheels are not those that are needed: {', '.join(wrong)}", where=str(folder), fix="make gpu-wheels"
        )
    size = sum(file.stat().st_size for file in files)
    if size > LIMIT:
        raise MeasurementError(
            f"the wheels take {size:,} bytes, the limit is {LIMIT:,}",
            where=str(folder),
            fix="leave out what perf.gpu can do without",
        )
    return size
