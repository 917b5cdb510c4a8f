"""Published memory and link speeds of GPUs.

Source: NVIDIA's data sheets. A link's speed is that of one direction, half of what the data sheets add up.
"""

from typing import NamedTuple

__all__ = ["GPUS", "Gpu"]

_GB = 10**9
_GIB = 1 << 30


class Gpu(NamedTuple):
    """One kind of GPU.

    Attributes:
        memory_bytes: size of its memory.
        link: name of the link between the GPUs of a machine.
        link_bytes_per_second: its speed in one direction.
    """

    memory_bytes: int
    link: str
    link_bytes_per_second: float


GPUS = {
    "a100": Gpu(80 * _GIB, "NVLink 3", 300 * _GB),
    "a100-40gb": Gpu(40 * _GIB, "NVLink 3", 300 * _GB),
    "b200": Gpu(180 * _GIB, "NVLink 5", 900 * _GB),
    "h100": Gpu(80 * _GIB, "NVLink 4", 450 * _GB),
    "h200": Gpu(141 * _GIB, "NVLink 4", 450 * _GB),
    "l4": Gpu(24 * _GIB, "PCIe 4 x16", 32 * _GB),
    "l40s": Gpu(48 * _GIB, "PCIe 4 x16", 32 * _GB),
    "rtx4090": Gpu(24 * _GIB, "PCIe 4 x16", 32 * _GB),
    "v100": Gpu(32 * _GIB, "NVLink 2", 150 * _GB),
}
"""The GPUs by name."""
