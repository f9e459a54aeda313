"""Qwen3-VL's patch embedding as the product that it is.

Its kernel is as large as its input, so the convolution is one product with the flattened kernel. Libraries compute it as a
convolution all the same: on a CPU that takes several times as long, and cuDNN's 3-D convolutions in 16 bits are slower
still. Sums come in another order, so the result differs by rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class PatchProduct(nn.Conv3d):
    """A 3-D convolution over inputs as large as its kernel; parameters and their names stay those of the convolution."""

    def forward(self, patches: Tensor) -> Tensor:
        """float[n, C, T, P, P] -> float[n, D, 1, 1, 1]."""
        product = functional.linear(patches.flatten(1), self.weight.flatten(1), self.bias)
        return product[..., None, None, None]


def patches_as_product(model: PreTrainedModel) -> None:
    """Turns the patch embedding of a model, adapted or not, into a product.

    Raises:
        ValueError: It is another layer than a convolution over whole patches.
    """
    inner = next(module for module in model.modules() if hasattr(module, "get_rope_index"))
    layer = inner.visual.patch_embed.proj
    if not isinstance(layer, nn.Conv3d) or layer.kernel_size != layer.stride or layer.padding != (0, 0, 0):
        raise ValueError(f"the patch embedding is no convolution over whole patches: {layer}")
    # The class alone, so that parameters, hooks and copies of the module stay what they are.
    layer.__class__ = PatchProduct
