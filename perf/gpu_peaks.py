"""Dense bfloat16 peak of devices, in operations a second, by the name that PyTorch gives them.

Sources: NVIDIA's data sheets of H200, H200 NVL, H100 (SXM, PCIe, NVL), A100, L40S, L4 and A10 Tensor Core GPUs. Those of
Hopper and Ada state peaks with sparsity, twice the dense ones.
"""

from __future__ import annotations

BF16_PEAKS = {
    "NVIDIA H200": 989e12,
    "NVIDIA H200 NVL": 835e12,
    "NVIDIA H100 80GB HBM3": 989e12,
    "NVIDIA H100 PCIe": 756e12,
    "NVIDIA H100 NVL": 835e12,
    "NVIDIA A100-SXM4-40GB": 312e12,
    "NVIDIA A100-SXM4-80GB": 312e12,
    "NVIDIA A100-PCIE-40GB": 312e12,
    "NVIDIA A100 80GB PCIe": 312e12,
    "NVIDIA L40S": 362e12,
    "NVIDIA L4": 121e12,
    "NVIDIA A10": 125e12,
}


def utilisation(flops: float, seconds: float, device: str) -> float | None:
    """Share of a device's dense bfloat16 peak that useful operations took; `None` for a device that is not listed.

    Args:
        flops: Operations that the model asks for; what checkpointing repeats is left out.
        seconds: Time that they took.
        device: Its name.
    """
    peak = BF16_PEAKS.get(device)
    return None if peak is None else flops / seconds / peak
