"""Peak performance and memory of accelerators, by their makers' data sheets."""

from __future__ import annotations

from dataclasses import dataclass

from zoo.base.errors import UnknownNameError

MIB = 2**20


@dataclass(frozen=True)
class Device:
    """An accelerator."""

    name: str  # Usual name
    memory: int  # Bytes, as `nvidia-smi` shows
    flops: float  # Operations a second of matrix products in bfloat16 that add up in float32, without sparsity
    bandwidth: float  # Bytes a second between memory and chip
    link: float  # Bytes a second that go out to the other devices of a machine, and as many come in
    network: float  # The same to other machines, for each device of one that is built as the maker builds them
    source: str  # Where this is written


DEVICES = {
    "a100-40gb": Device(
        "A100 SXM 40 GB", 40_960 * MIB, 312e12, 1555e9, 300e9, 25e9, "NVIDIA A100 data sheet, 2021; DGX A100 data sheet"
    ),
    "a100": Device(
        "A100 SXM 80 GB", 81_920 * MIB, 312e12, 2039e9, 300e9, 25e9, "NVIDIA A100 data sheet, 2021; DGX A100 data sheet"
    ),
    "h100": Device(
        "H100 SXM 80 GB", 81_559 * MIB, 989e12, 3350e9, 450e9, 50e9, "NVIDIA H100 data sheet, 2023; DGX H100 data sheet"
    ),
    "h200": Device(
        "H200 SXM 141 GB", 143_771 * MIB, 989e12, 4800e9, 450e9, 50e9, "NVIDIA H200 data sheet, 2024; DGX H200 as well"
    ),
    "l4": Device(
        "L4 24 GB", 23_034 * MIB, 121e12, 300e9, 32e9, 3e9,
        "NVIDIA L4 data sheet, 2023; PCIe 4.0 x16; 25 Gbit/s assumed",
    ),
    "l40s": Device(
        "L40S 48 GB", 46_068 * MIB, 362e12, 864e9, 32e9, 3e9,
        "NVIDIA L40S data sheet, 2023; PCIe 4.0 x16; 25 Gbit/s assumed",
    ),
    "rtx-3090": Device(
        "RTX 3090 24 GB", 24_576 * MIB, 71e12, 936e9, 32e9, 3e9,
        "NVIDIA Ampere GA102 whitepaper, 2021, appendix A; PCIe 4.0 x16; 25 Gbit/s assumed",
    ),
    "rtx-4090": Device(
        "RTX 4090 24 GB", 24_564 * MIB, 165e12, 1008e9, 32e9, 3e9,
        "NVIDIA Ada architecture whitepaper, 2023, appendix A; PCIe 4.0 x16; 25 Gbit/s assumed",
    ),
}  # fmt: skip
"""Devices by the names that commands take."""


def find_device(name: str) -> Device:
    """Look a device up."""
    known = name.lower().replace(" ", "-").replace("_", "-")
    if known not in DEVICES:
        raise UnknownNameError(name, DEVICES, kind="device")
    return DEVICES[known]
