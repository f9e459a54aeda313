"""Tiny random PaliGemmas of both generations: the real model and processor classes, for a CPU.

As `models.tiny`: the tokenizer is trained on the texts it is given, with PaliGemma's own tokens behind in their order.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from models.paligemma_tokens import IMAGE, LOCATIONS, MASKS
from models.tiny import TinySize, train_bpe

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

# Gemma's, at its ids 0 to 3.
SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>")
# Pieces that BPE may not merge across: single digits, words with the blank before them, anything else by itself.
PIECES = r"\d| ?[A-Za-z_]+|[^A-Za-z_\d]"


@dataclass(frozen=True, slots=True, kw_only=True)
class TinyPaliGemmaSize(TinySize):
    """Shape of a tiny PaliGemma; the defaults give about 0.3 M weights. PaliGemma's own tokens come on top of `vocabulary`.

    Attributes:
        generation: 1 has Gemma as its language model, 2 has Gemma 2.
        side: Side of its pictures in pixels, a multiple of `patch`.
        patch: Side of a patch, which is one token.
    """

    generation: Literal[1, 2] = 1
    side: int = 32
    patch: int = 8


def train_tokenizer(texts: Iterable[str], vocabulary: int) -> PreTrainedTokenizerBase:
    """A byte-level BPE tokenizer with Gemma's special tokens first and PaliGemma's own last."""
    from tokenizers import AddedToken
    from transformers import PreTrainedTokenizerFast

    own = (*LOCATIONS, *MASKS)
    plain = (text for text in texts if not any(token in text for token in (own[0][:4], own[-1][:4])))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=train_bpe(plain, vocabulary, SPECIAL, PIECES),
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>",
        unk_token="<unk>",
        model_max_length=32_768,
        padding_side="left",
    )
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in own])
    tokenizer.add_tokens([AddedToken(IMAGE, normalized=False, special=True)], special_tokens=True)
    return tokenizer


def build_tiny_paligemma(folder: Path, texts: Iterable[str], size: TinyPaliGemmaSize, *, seed: int) -> None:
    """Writes a tiny PaliGemma of random weights with its processor to `folder`.

    Args:
        folder: Output folder.
        texts: Texts to train the tokenizer on; those with location or mask codes are left out.
        size: Shape of the model.
        seed: Seed of the weights.
    """
    from transformers import (
        GenerationConfig,
        PaliGemmaConfig,
        PaliGemmaForConditionalGeneration,
        PaliGemmaProcessor,
        SiglipImageProcessor,
    )

    tokenizer = train_tokenizer(texts, size.vocabulary)
    image_processor = SiglipImageProcessor(
        size={"height": size.side, "width": size.side},
        image_mean=[size.pixel_mean] * 3,
        image_std=[size.pixel_std] * 3,
    )
    image_processor.image_seq_length = (size.side // size.patch) ** 2
    processor = PaliGemmaProcessor(image_processor=image_processor, tokenizer=tokenizer)
    config = PaliGemmaConfig(
        text_config=_text_config(size, tokenizer),
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": size.vision_hidden,
            "intermediate_size": 3 * size.vision_hidden,
            "num_hidden_layers": size.vision_layers,
            "num_attention_heads": size.vision_hidden // 32,
            "image_size": size.side,
            "patch_size": size.patch,
            "vision_use_head": False,
        },
        image_token_index=tokenizer.convert_tokens_to_ids(IMAGE),
        projection_dim=size.hidden,
        hidden_size=size.hidden,
        vocab_size=len(tokenizer),
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    model = PaliGemmaForConditionalGeneration(config).float()
    embeddings = model.model.vision_tower.embeddings
    with torch.no_grad():
        # At the usual 0.02 the positions drown beside the patch content and tiny models learn no places.
        embeddings.position_embedding.weight.normal_(std=0.5)
        embeddings.patch_embedding.weight.normal_(std=0.03)
    model.generation_config = GenerationConfig(
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=tokenizer.bos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        do_sample=False,
    )
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)


def _text_config(size: TinyPaliGemmaSize, tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """The language model's config."""
    config = {
        "model_type": "gemma",
        "vocab_size": len(tokenizer),
        "hidden_size": size.hidden,
        "intermediate_size": 3 * size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.hidden // 32,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "max_position_embeddings": 8192,
        "initializer_range": 0.06,
        "tie_word_embeddings": True,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    if size.generation == 2:
        # The released values but for the scale, which is that of the head's width as in the 3B and 10B models.
        config |= {"model_type": "gemma2", "query_pre_attn_scalar": 32, "sliding_window": 4096}
    return config
