"""The patch embedding as a product: the same numbers, parameters and gradients as the convolution."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from models.patches import PatchProduct, patches_as_product
from models.qwen3_vl import load_model


def test_a_product_is_the_convolution(make_recipe):
    plain = load_model(make_recipe().model)
    changed = copy.deepcopy(plain)
    patches_as_product(changed)
    layers = [model.model.visual.patch_embed for model in (plain, changed)]
    assert type(layers[1].proj) is PatchProduct
    assert changed.state_dict().keys() == plain.state_dict().keys()
    pixels = torch.randn(40, 1536)
    found, expected = (layer(pixels) for layer in layers)
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, atol=1e-5)
    for result in (found, expected):
        result.square().sum().backward()
    for one, other in zip(layers[1].parameters(), layers[0].parameters(), strict=True):
        assert (one.grad - other.grad).norm() <= 1e-5 * other.grad.norm()


def test_copies_are_products_of_their_own_weights(make_recipe):
    model = load_model(make_recipe().model)
    patches_as_product(model)
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied.model.visual.patch_embed.proj.weight.zero_()
        copied.model.visual.patch_embed.proj.bias.zero_()
    assert not copied.model.visual.patch_embed(torch.randn(4, 1536)).any()
    assert model.model.visual.patch_embed(torch.randn(4, 1536)).any()


def test_another_layer_is_refused(make_recipe):
    model = load_model(make_recipe().model)
    model.model.visual.patch_embed.proj = nn.Conv3d(3, 64, kernel_size=[2, 16, 16], stride=[1, 16, 16])
    with pytest.raises(ValueError, match="no convolution over whole patches"):
        patches_as_product(model)
