"""`python -m models tiny|export`: tiny random twins, and a run's model in another number type."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from recipes.errors import UserError, run_command
from recipes.schema import LocalFamily

# The answer form from which a twin's tokenizer learns, by benchmark; `plain` for people's own data.
_CODECS = {"scintiground": "scintiground_json", "sgmri": "sgmri_answer_first"}


def main() -> int:
    """Dispatches on the subcommand."""
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tiny = commands.add_parser("tiny", help="write a tiny random Qwen3-VL or PaliGemma with its processor")
    tiny.add_argument("out", type=Path)
    tiny.add_argument("--texts", type=Path, nargs="+", required=True, help="datasets whose texts train the tokenizer")
    tiny.add_argument("--family", choices=get_args(LocalFamily), default="qwen3_vl", help="default: qwen3_vl")
    tiny.add_argument("--generation", type=int, choices=(1, 2), default=1, help="of PaliGemma (default: 1)")
    tiny.add_argument("--side", type=int, default=32, help="of PaliGemma's pictures in pixels (default: 32)")
    tiny.add_argument("--patch", type=int, default=8, help="side of PaliGemma's patches in pixels (default: 8)")
    tiny.add_argument("--hidden", type=int, default=64, help="width of both towers (default: 64)")
    tiny.add_argument("--layers", type=int, default=2, help="blocks of both towers (default: 2)")
    tiny.add_argument("--seed", type=int, default=0)
    export = commands.add_parser("export", help="copy a fully trained model in another number type")
    export.add_argument("model", type=Path, help="model folder of a full fine-tuning run")
    export.add_argument("out", type=Path)
    export.add_argument("--dtype", choices=("bfloat16", "float16", "float32"), default="bfloat16")
    arguments = parser.parse_args()
    if arguments.command == "tiny":
        _tiny(arguments)
        print(f"model: {arguments.out}")
        print(f"next: python -m train RECIPE model.checkpoint={arguments.out}")
        return 0
    _export(arguments.model, arguments.out, arguments.dtype)
    print(f"model: {arguments.out}")
    print(f"next: python -m infer {arguments.out} --data DATASET")
    return 0


def _tiny(arguments: argparse.Namespace) -> None:
    widths = {
        "hidden": arguments.hidden,
        "layers": arguments.layers,
        "vision_hidden": arguments.hidden,
        "vision_layers": arguments.layers,
    }
    from benchmarks.dataset import load_info

    benchmark = load_info(arguments.texts[0]).benchmark
    texts = _texts(arguments.texts, _CODECS.get(benchmark, "plain"))
    if arguments.family == "paligemma":
        from models.tiny_paligemma import TinyPaliGemmaSize, build_tiny_paligemma

        size = TinyPaliGemmaSize(generation=arguments.generation, side=arguments.side, patch=arguments.patch, **widths)
        build_tiny_paligemma(arguments.out, texts, size, seed=arguments.seed)
        return
    from models.tiny import PIECES, SGMRI_PIECES, TinySize, build_tiny_qwen3_vl

    pieces = SGMRI_PIECES if benchmark == "sgmri" else PIECES
    build_tiny_qwen3_vl(arguments.out, texts, TinySize(**widths), seed=arguments.seed, pieces=pieces)


def _texts(datasets: list[Path], codec_name: str) -> Iterator[str]:
    """Prompts and answers of the training splits, every third record (the forms repeat)."""
    from benchmarks.dataset import read_records
    from collators.codecs.registry import get_codec

    codec = get_codec(codec_name)
    for dataset in datasets:
        for number, record in enumerate(read_records(dataset, "train")):
            if number % 3 == 0:
                yield f"{record.task}: {record.question}"
                yield codec.encode(record.target, record.ask())


def _export(model: Path, out: Path, dtype: str) -> None:
    import shutil

    import torch
    from transformers import AutoModelForImageTextToText

    if not (model / "config.json").is_file():
        raise UserError(f"{model} is not a model folder", fix="give the `model` folder of a full fine-tuning run")
    loaded = AutoModelForImageTextToText.from_pretrained(model, dtype=getattr(torch, dtype), use_safetensors=True)
    shutil.copytree(model, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.safetensors"))
    loaded.save_pretrained(out)


if __name__ == "__main__":
    sys.exit(run_command(main))
