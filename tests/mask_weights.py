"""Random weights of the mask decoder, in the published form."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Names as in the published file; transposed convolutions are stored (in, out, height, width).
SHAPES = {
    "_vq_vae._embedding": (128, 512),
    "decoder.0.weight": (128, 512, 1, 1),
    **{f"decoder.{block}.net.{layer}.weight": (128, 128, 3, 3) for block in (2, 3) for layer in (0, 2)},
    **{f"decoder.{block}.net.4.weight": (128, 128, 1, 1) for block in (2, 3)},
    "decoder.4.weight": (128, 128, 4, 4),
    "decoder.6.weight": (128, 64, 4, 4),
    "decoder.8.weight": (64, 32, 4, 4),
    "decoder.10.weight": (32, 16, 4, 4),
    "decoder.12.weight": (1, 16, 1, 1),
}
UPWARDS = ("decoder.4", "decoder.6", "decoder.8", "decoder.10")


def random_weights(seed: int = 7) -> dict[str, NDArray[np.float32]]:
    """Arrays by name: of a size that keeps values near 1 through all layers, and about 0 in the last."""
    rng = np.random.default_rng(seed)
    made = {}
    for name, shape in SHAPES.items():
        layer = name.removesuffix(".weight")
        # Each output of a transposed convolution of stride 2 sums over a quarter of the kernel.
        inputs = shape[0] * 4 if layer in UPWARDS else int(np.prod(shape[1:]))
        spread = 1.0 if name == "_vq_vae._embedding" else np.sqrt(2 / inputs)
        made[name] = rng.normal(0, spread, shape).astype(np.float32)
        if layer != name:
            outputs = shape[1] if layer in UPWARDS else shape[0]
            made[f"{layer}.bias"] = rng.normal(0, 0.1, outputs).astype(np.float32)
    made["decoder.12.weight"] /= 8
    made["decoder.12.bias"][:] = 0.16
    return made
