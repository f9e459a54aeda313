"""The prediction folder: `predictions.jsonl` in dataset order and `manifest.json`.

Read by `eval` and by `infer` (resume, export); written only by `infer`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from benchmarks.dataset import read_struct
from benchmarks.errors import DataError
from benchmarks.schema import Answer

MANIFEST = "manifest.json"
PREDICTIONS = "predictions.jsonl"


class Tokens(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Token counts of one row: prompt (image tokens included) and newly generated ones."""

    prompt: int
    new: int


class Prediction(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One row of a prediction file.

    Attributes:
        id: The record's id.
        text: The model's text, untouched; `None` where the sample failed (`error` says why), but for rows of others whose
            files hold a text beside the failure.
        answer: The decoded answer, boxes in native pixels.
        invalid: Why the text could not be decoded (then `answer` is absent).
        finish: `stop`, or `length` where the limit on new tokens ended the text.
        tokens: Token counts.
        label_scores: Class word -> natural logarithm of the probability that it and what closes it stand at the
            class's place in the answer. The words of one row exclude each other, so their probabilities add up to
            at most 1. Absent where the task or the answer form has no class, where the text has no place for one
            (only if `label_scores_at` would be `generated`), and in controls without a model.
        label_scores_at: What comes before that place: `prompt`, the prompt and constant text only; `generated`,
            also words that the model chose in `text`. Present together with `label_scores`.
        error: What went wrong with this sample on our side; never scored as a wrong answer unseen.
    """

    id: str
    text: str | None = None
    answer: Answer | None = None
    invalid: str | None = None
    finish: Literal["stop", "length"] | None = None
    tokens: Tokens | None = None
    label_scores: dict[str, float] | None = None
    label_scores_at: Literal["prompt", "generated"] | None = None
    error: str | None = None


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """How a prediction file came about.

    Attributes:
        name: Short name for tables (recipe or model, and the control's name if it is one).
        dataset: Folder of the prepared dataset, as given.
        dataset_hash: Its content hash.
        split: Which split was predicted.
        records: Number of rows.
        limit: If only the first N records were asked for, N.
        engine: `hf`, `openai`, `control`, `import`, ...
        control: `majority`, `prompt_only`, `blank_image` or `shuffled_image`, else absent.
        codec: Codec that wrote the targets and read the texts.
        encoder_fingerprint: Hash of prompt, image plan, codec and processor; absent without a model.
        weights: Path or name of the weights; with engine `openai`, the model's name on the server.
        weights_hash: SHA-256 over their safetensors files; `hub:` and the commit for weights from the hub.
        base_weights_hash: The same of the base model under an adapter; absent without an adapter.
        recipe: The recipe as a plain mapping.
        decoding: Decoding settings.
        environment: Versions, device, dtype, git commit.
        timing: Wall seconds, tokens per second; of a server with known prices, dollars; left out when two files are
            compared.
    """

    name: str
    dataset: str
    dataset_hash: str
    split: str
    records: int
    engine: str
    codec: str
    limit: int | None = None
    control: str | None = None
    encoder_fingerprint: str | None = None
    weights: str | None = None
    weights_hash: str | None = None
    base_weights_hash: str | None = None
    recipe: dict[str, Any] | None = None
    decoding: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    timing: dict[str, float] = {}


def encode_prediction(row: Prediction) -> bytes:
    """One JSON line without the newline; the same row always gives the same bytes."""
    return msgspec.json.encode(row, order="deterministic")


def read_manifest(folder: Path) -> Manifest:
    """Reads `manifest.json`.

    Raises:
        DataError: The folder or file is missing or not a manifest.
    """
    path = folder / MANIFEST
    if not folder.is_dir():
        raise DataError(
            f"there is no folder {folder}", fix="give a prediction folder: `python -m infer` prints its path"
        )
    if (folder / "model").is_dir() or (folder / "recipe.yaml").is_file():
        raise DataError(
            f"{folder} holds a model, not its predictions",
            fix=f"predict first: `python -m infer {folder} --data DATASET --split test`, then score what it writes",
        )
    if not path.is_file():
        raise DataError(
            f"{folder} is not a finished prediction folder: {MANIFEST} is missing",
            fix="run `python -m infer` again with the same arguments: it continues where it stopped",
        )
    return read_struct(path, Manifest, what="a prediction manifest", fix="predict again")


def read_predictions(folder: Path) -> list[Prediction]:
    """Reads `predictions.jsonl` in file order; ids are not checked here.

    Raises:
        DataError: A line is not a prediction; names file and row.
    """
    path = folder / PREDICTIONS
    if not path.is_file():
        raise DataError(f"{path} is missing", fix="run `python -m infer` again: it continues where it stopped")
    decoder = msgspec.json.Decoder(Prediction)
    rows = []
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                rows.append(decoder.decode(line))
            except (msgspec.ValidationError, msgspec.DecodeError) as error:
                raise DataError(
                    f"not a prediction: {error}", where=f"{path} row {number}", fix="mend or predict again"
                ) from error
    return rows
