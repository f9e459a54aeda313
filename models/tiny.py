"""Tiny random twins: the real model and processor classes, small enough to train on a CPU.

`build_tiny_qwen3_vl` writes a complete checkpoint folder (weights, config, tokenizer, chat template,
image processor) that `AutoProcessor` and `AutoModelForImageTextToText` load without a network. The
tokenizer is trained on the texts it is given: digits stay single tokens and the fixed parts of a
benchmark's answers become one token each, so that answers are short.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerBase

SPECIAL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
)
# The turn structure of the official template; tools and videos are left out.
CHAT_TEMPLATE = (
    "{%- for message in messages %}{{- '<|im_start|>' + message['role'] + '\\n' }}"
    "{%- if message['content'] is string %}{{- message['content'] }}"
    "{%- else %}{%- for part in message['content'] %}"
    "{%- if part['type'] == 'image' %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}"
    "{%- elif part['type'] == 'text' %}{{- part['text'] }}{%- endif %}"
    "{%- endfor %}{%- endif %}{{- '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
# Pieces that BPE may not merge across: fixed parts of the answer JSON, single digits, words, the rest.
PIECES = (
    r'\{"task":"[a-z_]+","[a-z]+":"'
    r'|","(?:region|class)":"'
    r'|","boxes":\[\{"view":"|"view":"|","bbox":\[|\]\},\{|\]\}\]\}|"\}'
    r"|\d| ?[A-Za-z_]+|[^A-Za-z_\d]"
)
# The same for SGMRI-VQA: keys with whatever stands between them, the ends of objects, boxes in words, option letters.
SGMRI_PIECES = (
    r'(?:["\[\]{},]*"(?:answer|bboxes|frame|label|bbox|reasoning)":)+["\[]*|"?\]?\}?\]?\}$'
    r"|\]</bbx>(?:; Frame |, <bbx>\[)?|: <bbx>\[|<bbx>\[|Frame |\n[A-D]\) "
    r"|\d| ?[A-Za-z]+|[^A-Za-z\d]"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TinySize:
    """Shape of a tiny model; the defaults give a Qwen3-VL of about 0.3 M weights.

    Attributes:
        hidden: Width of the language model, a multiple of 32 (heads have 32 channels).
        layers: Blocks of the language model.
        vision_hidden: Width of the vision tower, a multiple of 32.
        vision_layers: Blocks of the vision tower.
        vocabulary: Upper bound on the tokenizer's size.
        pixel_mean: Mean of the normalised grey value; a dark scan with 0.5 would be a constant -1.
        pixel_std: Standard deviation of the normalised grey value.
    """

    hidden: int = 64
    layers: int = 2
    vision_hidden: int = 64
    vision_layers: int = 2
    vocabulary: int = 1024
    pixel_mean: float = 0.1
    pixel_std: float = 0.2


def train_bpe(texts: Iterable[str], vocabulary: int, special: Sequence[str], pieces: str) -> Tokenizer:
    """Trains a byte-level BPE tokenizer; the same texts give the same one.

    Args:
        texts: What to train on.
        vocabulary: Upper bound on its size.
        special: Its special tokens, which get the first ids.
        pieces: Regular expression of the pieces that are never merged with each other.
    """
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=list(special),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def train_tokenizer(texts: Iterable[str], vocabulary: int, pieces: str = PIECES) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer with Qwen's special tokens."""
    from transformers import PreTrainedTokenizerFast

    roles = ["system\n", "user\n", "assistant\n"] * 20
    return PreTrainedTokenizerFast(
        tokenizer_object=train_bpe([*texts, *roles], vocabulary, SPECIAL, pieces),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=[token for token in SPECIAL if token not in ("<|im_end|>", "<|endoftext|>")],
        model_max_length=32_768,
        chat_template=CHAT_TEMPLATE,
        padding_side="left",
    )


def build_tiny_qwen3_vl(folder: Path, texts: Iterable[str], size: TinySize, *, seed: int, pieces: str = PIECES) -> None:
    """Writes a tiny Qwen3-VL of random weights with its processor to `folder`.

    Args:
        folder: Output folder.
        texts: Texts to train the tokenizer on.
        size: Shape of the model.
        seed: Seed of the weights.
        pieces: Regular expression of what the tokenizer never merges.
    """
    from transformers import GenerationConfig, Qwen3VLConfig, Qwen3VLForConditionalGeneration, Qwen3VLProcessor
    from transformers.models.qwen2_vl.image_processing_qwen2_vl import Qwen2VLImageProcessor
    from transformers.models.qwen3_vl.video_processing_qwen3_vl import Qwen3VLVideoProcessor

    tokenizer = train_tokenizer(texts, size.vocabulary, pieces)
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in SPECIAL}
    pixels = {
        "image_mean": [size.pixel_mean] * 3,
        "image_std": [size.pixel_std] * 3,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "merge_size": 2,
        "size": {"shortest_edge": 1024, "longest_edge": 1_003_520},
    }
    processor = Qwen3VLProcessor(
        image_processor=Qwen2VLImageProcessor(**pixels),
        tokenizer=tokenizer,
        video_processor=Qwen3VLVideoProcessor(**pixels),
        chat_template=CHAT_TEMPLATE,
    )
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": len(tokenizer),
            "hidden_size": size.hidden,
            "intermediate_size": 3 * size.hidden,
            "num_hidden_layers": size.layers,
            "num_attention_heads": size.hidden // 32,
            "num_key_value_heads": size.hidden // 32,
            "head_dim": 32,
            "max_position_embeddings": 32_768,
            "initializer_range": 0.06,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 5_000_000,
                "mrope_interleaved": True,
                "mrope_section": [8, 4, 4],
            },
            "eos_token_id": ids["<|im_end|>"],
            "pad_token_id": ids["<|endoftext|>"],
        },
        vision_config={
            "depth": size.vision_layers,
            "hidden_size": size.vision_hidden,
            "intermediate_size": 3 * size.vision_hidden,
            "num_heads": size.vision_hidden // 32,
            "out_hidden_size": size.hidden,
            "patch_size": 16,
            "spatial_merge_size": 2,
            "temporal_patch_size": 2,
            "num_position_embeddings": 256,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.06,
        },
        image_token_id=ids["<|image_pad|>"],
        video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"],
        vision_end_token_id=ids["<|vision_end|>"],
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = Qwen3VLForConditionalGeneration(config).float()
    with torch.no_grad():
        # At the usual 0.02 the positions drown beside the patch content and tiny models learn no places.
        model.model.visual.pos_embed.weight.normal_(std=0.5)
        model.model.visual.patch_embed.proj.weight.normal_(std=0.03)
    model.generation_config = GenerationConfig(
        eos_token_id=[ids["<|im_end|>"], ids["<|endoftext|>"]], pad_token_id=ids["<|endoftext|>"], do_sample=False
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
