"""Small PaliGemmas of both generations, and made-up batches for them."""

from __future__ import annotations

import weakref

import torch
from transformers import PaliGemmaConfig

from models.costs import MicroBatch
from tests.train.costing import SUPERVISED

IMAGE, TEXT, ANSWER = 5, 20, 30
PATCH = 14


def small_paligemma(generation, side, *, vocabulary=2000):
    """A config whose pictures have `side` x `side` patches."""
    text = {
        "model_type": "gemma",
        "vocab_size": vocabulary,
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "pad_token_id": 0,
    }
    if generation == 2:
        text |= {"model_type": "gemma2", "num_key_value_heads": 2, "query_pre_attn_scalar": 32}
    return PaliGemmaConfig(
        architectures=["PaliGemmaForConditionalGeneration"],
        text_config=text,
        vision_config={
            "model_type": "siglip_vision_model",
            "hidden_size": 64,
            "intermediate_size": 256,
            "num_hidden_layers": 3,
            "num_attention_heads": 2,
            "image_size": side * PATCH,
            "patch_size": PATCH,
            "vision_use_head": False,
        },
        image_token_index=IMAGE,
        projection_dim=128,
        hidden_size=128,
        vocab_size=vocabulary,
        tie_word_embeddings=True,
    )


def paligemma_batch(samples, width, side):
    """A padded batch with one picture of `side` x `side` patches per sample, and its shape."""
    tokens = side**2
    ids = torch.full((samples, width), TEXT)
    ids[:, :tokens] = IMAGE
    labels = torch.full_like(ids, -100)
    labels[:, -SUPERVISED - 2 : -2] = ANSWER
    mask = torch.ones_like(ids)
    mask[0, -2:] = 0
    batch = {
        "input_ids": ids,
        "attention_mask": mask,
        "token_type_ids": (labels != -100).long(),
        "pixel_values": torch.randn(samples, 3, side * PATCH, side * PATCH),
        "logits_to_keep": torch.cat([labels[:, 1:] != -100, torch.zeros(samples, 1, dtype=torch.bool)], dim=1),
    }
    shape = MicroBatch(
        samples=samples,
        width=width,
        images=samples * tokens,
        supervised=samples * SUPERVISED,
        image_pairs=samples * tokens**2,
    )
    return batch, labels, shape


def mask_bytes(model, batch):
    """Bytes of the masks that the language model's blocks still hold after a forward pass."""
    seen = []

    def look(module, arguments, keywords):
        seen.append(weakref.ref(keywords["attention_mask"]))

    language = next(module for name, module in model.named_modules() if name.endswith("language_model"))
    hooks = [layer.register_forward_pre_hook(look, with_kwargs=True) for layer in language.layers]
    outputs = model(**batch)
    for hook in hooks:
        hook.remove()
    assert len(seen) == len(hooks)
    storages = [mask().untyped_storage() for mask in seen if mask() is not None]
    del outputs
    return sum({storage.data_ptr(): storage.nbytes() for storage in storages}.values())
