"""The real Qwen tokenizer in a complete processor, built from the vocabulary that a package ships.

The package has the ranks of byte sequences only. The merges follow from them: applying the merges of
lower rank to the bytes of an entry always leaves the two parts that the entry joins.
"""

from __future__ import annotations

import base64
from itertools import pairwise
from pathlib import Path

from transformers import Qwen2TokenizerFast, Qwen3VLProcessor
from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

from models.tiny import CHAT_TEMPLATE

# In the order of their ids, from 151643.
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in byte-level vocabularies."""
    shown = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    hidden = [byte for byte in range(256) if byte not in shown]
    names = {byte: chr(byte) for byte in shown} | {byte: chr(256 + n) for n, byte in enumerate(hidden)}
    return [names[byte] for byte in range(256)]


def halves(entry: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts that the merge of `entry` joins."""
    parts = [entry[i : i + 1] for i in range(len(entry))]
    limit = ranks[entry]
    while len(parts) > 2:
        pairs = [ranks.get(left + right, limit) for left, right in pairwise(parts)]
        best = min(range(len(pairs)), key=pairs.__getitem__)
        assert pairs[best] < limit, entry
        parts[best : best + 2] = [parts[best] + parts[best + 1]]
    return parts[0], parts[1]


def build_processor(vocabulary: Path, folder: Path) -> None:
    """Writes a Qwen3-VL processor with the real vocabulary to `folder`."""
    lines = (line.split() for line in vocabulary.read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(text): int(rank) for text, rank in lines}
    letters = byte_alphabet()

    def spelled(data: bytes) -> str:
        return "".join(letters[byte] for byte in data)

    merges = [tuple(map(spelled, halves(entry, ranks))) for entry in ranks if len(entry) > 1]
    tokenizer = Qwen2TokenizerFast(vocab={spelled(entry): rank for entry, rank in ranks.items()}, merges=merges)
    tokenizer.add_special_tokens({"additional_special_tokens": list(SPECIALS)})
    tokenizer.eos_token, tokenizer.pad_token = "<|im_end|>", "<|endoftext|>"
    pixels = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 65_536, "longest_edge": 16_777_216},
    }
    Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**pixels),
        chat_template=CHAT_TEMPLATE,
    ).save_pretrained(folder)
