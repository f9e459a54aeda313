"""Predicting a split: system or control, settings, manifest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.chat import Endpoint
from benchmarks.dataset import image_root, load_info, read_records, sha256_file
from benchmarks.errors import DataError
from benchmarks.predictions import Manifest, read_predictions
from benchmarks.schema import Record
from collators.codecs.base import Decode
from collators.codecs.registry import get_codec
from collators.sources import BlankImages, FolderImages, ImageSource
from infer.blocks import consecutive
from infer.controls import PRIOR_ENGINES, shuffle_images
from infer.engines.local import prediction_blocks
from infer.load import Described, Loader, System, describe
from infer.predict import Job, predict
from infer.served import Served, costs, describe_served
from models.processes import process_state
from models.provenance import environment
from recipes.controls import IMAGE_CONTROLS, PRIORS_OF
from recipes.errors import UserError
from recipes.schema import Model

SHUFFLE_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the command line asks for.

    Attributes:
        weights: Run folder, model folder or hub name; `None` for a control without a model, or for one on a server.
        data: Prepared dataset.
        split: Split to predict.
        out: Prediction folder.
        recipe: Recipe file, if not the one beside the weights.
        overrides: `section.key=value` changes.
        control: A control's name.
        name: Name in tables; by default the control's or the run's.
        limit: Only the first N records.
        allow_mismatch: Accept an encoder other than the stored one.
        endpoint: A model on a server, which takes the place of weights.
        threads: Calls to it at a time.
        retry_errors: Predict the records again whose rows hold an error.
    """

    weights: str | None
    data: Path
    split: str
    out: Path
    recipe: str | None = None
    overrides: Sequence[str] = ()
    control: str | None = None
    name: str | None = None
    limit: int | None = None
    allow_mismatch: bool = False
    endpoint: Endpoint | None = None
    threads: int = 1
    retry_errors: bool = False


def run(request: Request) -> Path:
    """Predicts and returns the prediction folder.

    Raises:
        UserError: The weights or their encoder cannot be used; see `load_system`.
        DataError: The dataset or the folder cannot be used, or the control does not know the dataset's benchmark.
    """
    return run_all([request])[0]


def run_all(requests: Sequence[Request]) -> list[Path]:
    """Predicts with several systems, one after the other; adapters on one base take turns on it.

    Every run's recipe, encoder and base are checked before the first prediction. A folder has the same rows as if
    its system had been predicted alone.

    Returns:
        The prediction folders, in the order of the requests.

    Raises:
        UserError, DataError: As `run`; also where two requests would write one folder.
    """
    _check_outs(requests)
    described = [_describe(request) for request in requests]
    loader = Loader()
    for place in _by_base(described):
        request, known = requests[place], described[place]
        records = list(read_records(request.data, request.split))[: request.limit]
        if known is None:
            _run_prior(request, records)
        elif isinstance(known, Served):
            _run_served(request, records, known)
        else:
            _run_system(request, records, loader.load(known))
    return [request.out for request in requests]


def _check_outs(requests: Sequence[Request]) -> None:
    first: dict[Path, Request] = {}
    for request in requests:
        other = first.setdefault(request.out, request)
        if other is not request:
            raise UserError(
                f"{_model(other)} and {_model(request)} are both named {request.out.name}: "
                "one would overwrite the other's predictions",
                where=str(request.out),
                fix="predict them one by one, each with its own --out and --name",
            )


def _model(request: Request) -> str | None:
    return request.weights if request.endpoint is None else request.endpoint.model


def _describe(request: Request) -> Described | Served | None:
    if request.endpoint is not None:
        return describe_served(request.endpoint, recipe_path=request.recipe, overrides=request.overrides)
    if request.weights is None:
        return None
    return describe(
        request.weights,
        recipe_path=request.recipe,
        overrides=request.overrides,
        allow_mismatch=request.allow_mismatch,
    )


def _by_base(described: Sequence[Described | Served | None]) -> list[int]:
    """Places of the requests, those of adapters on one base after each other."""
    first: dict[Model, int] = {}
    turns = [
        first.setdefault(known.recipe.model, place) if isinstance(known, Described) and known.adapter else place
        for place, known in enumerate(described)
    ]
    return sorted(range(len(turns)), key=turns.__getitem__)


def _run_system(request: Request, records: Sequence[Record], system: System) -> Path:
    shown, images = _shown(request, records)
    decoding = system.recipe.decoding
    facts: dict[str, Any] = {
        "name": request.name or request.control or run_name(system.weights),
        "engine": "hf",
        "codec": system.recipe.codec,
        "encoder_fingerprint": system.encoder.fingerprint,
        "weights": request.weights,
        "weights_hash": system.weights_hash,
        "base_weights_hash": system.base_weights_hash,
        "recipe": system.recipe.model_dump(mode="json"),
        "decoding": decoding.model_dump() | {"greedy": True, "dtype": str(system.model.dtype).removeprefix("torch.")},
    }
    if decoding.mask_decoder is not None:
        # Another file in its place would draw other masks.
        facts["decoding"]["mask_decoder_hash"] = sha256_file(Path(decoding.mask_decoder))
    blocks = prediction_blocks(shown, system.recipe, system.encoder)
    job = _job(request, shown, facts, system.decode, blocks)
    return predict(job, lambda: system.engine(images, request.data), _manifest(request, facts, len(records)))


def _run_served(request: Request, records: Sequence[Record], served: Served) -> Path:
    shown, images = _shown(request, records)
    facts: dict[str, Any] = {
        "name": request.name or request.control or run_name(served.endpoint.model),
        "engine": "openai",
        "codec": served.recipe.codec,
        "encoder_fingerprint": served.encoder.fingerprint,
        "weights": served.endpoint.model,
        "recipe": served.recipe.model_dump(mode="json"),
        "decoding": {
            "server": served.endpoint.address,
            "temperature": 0,
            "max_new_tokens": served.recipe.decoding.max_new_tokens,
        },
    }
    # A block of one record: what was answered is never asked again.
    job = _job(request, shown, facts, served.encoder.decode, consecutive(len(shown), 1))
    return predict(job, lambda: served.engine(images), _manifest(request, facts, len(records)))


def _shown(request: Request, records: Sequence[Record]) -> tuple[Sequence[Record], ImageSource]:
    """The records and images that a model is shown, as the control wants them."""
    images = BlankImages() if request.control == "blank_image" else FolderImages(image_root(request.data))
    return shuffle_images(records, SHUFFLE_SEED) if request.control == "shuffled_image" else records, images


def _run_prior(request: Request, records: Sequence[Record]) -> Path:
    benchmark, control = load_info(request.data).benchmark, request.control or ""
    if control not in PRIORS_OF.get(benchmark, ()):
        own = f"choose {' or '.join(PRIORS_OF[benchmark])}, or " if benchmark in PRIORS_OF else ""
        raise DataError(
            f"control {control} does not know these data, the dataset's benchmark is {benchmark}",
            where=str(request.data),
            fix=f"{own}give weights and --control {' or '.join(IMAGE_CONTROLS)}: these work on any dataset",
        )
    name, make_engine = PRIOR_ENGINES[benchmark]
    codec = get_codec(name)
    facts: dict[str, Any] = {"name": request.name or control, "engine": "control", "codec": codec.name}
    job = _job(request, records, facts, codec.decode, consecutive(len(records), 256))
    return predict(job, lambda: make_engine(request.data, control), _manifest(request, facts, len(records)))


def run_name(weights: str) -> str:
    """Name of a run: its folder, seen through the `model` folder inside it."""
    path = Path(weights)
    return path.parent.name if path.name == "model" else path.name


def _job(
    request: Request, records: Sequence[Record], facts: dict[str, Any], decode: Decode, blocks: list[list[int]]
) -> Job:
    settings = facts | {
        "dataset_hash": load_info(request.data).content_hash,
        "split": request.split,
        "limit": request.limit,
        "control": request.control,
    }
    return Job(
        records=records,
        decode=decode,
        out=request.out,
        blocks=blocks,
        settings=settings,
        threads=request.threads,
        retry_errors=request.retry_errors,
    )


def _manifest(request: Request, facts: dict[str, Any], count: int) -> Callable[[float, int], Manifest]:
    def make(seconds: float, tokens: int) -> Manifest:
        timing = {"seconds": round(seconds, 2), "tokens_per_second": round(tokens / max(seconds, 1e-9), 2)}
        if request.endpoint is not None:
            timing |= costs(read_predictions(request.out), request.endpoint.price)
        return Manifest(
            **facts,
            dataset=str(request.data),
            dataset_hash=load_info(request.data).content_hash,
            split=request.split,
            records=count,
            limit=request.limit,
            control=request.control,
            environment=environment() | {"processes": process_state().num_processes},
            timing=timing,
        )

    return make
