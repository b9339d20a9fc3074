"""How fast a training step can be at most (Williams, Waterman and Patterson 2009, Roofline)."""

from __future__ import annotations

from dataclasses import dataclass

from .devices import Device
from .strategies import BFLOAT16, FLOAT32, NODE, Share, Strategy


@dataclass(frozen=True)
class Roofline:
    """The least seconds that an update takes on a device, by what it waits for. The largest is the bound.

    Attributes:
        compute: Matrix products at the peak of the device.
        memory: Weights, gradients, states and activations, each read and written as often as it must be.
        link: Gradients, weights or activations that go to other devices.
    """

    compute: float
    memory: float
    link: float

    @property
    def seconds(self) -> float:
        """The least seconds of an update, if everything happens at the same time."""
        return max(self.compute, self.memory, self.link)

    @property
    def bound(self) -> str:
        """Bottleneck: compute, memory or link."""
        return max(("compute", self.compute), ("memory", self.memory), ("link", self.link), key=lambda one: one[1])[0]


def roofline(
    share: Share, device: Device, devices: int, *, sequences: int, batches: int, flops: float, hidden_bytes: int
) -> Roofline:
    """Bound the time of an update."""
    weights = share.num_parameters
    shard = weights / share.shards * FLOAT32
    products = 3 * weights * BFLOAT16 + 2 * share.step.body.each * sequences
    update = 2 * shard * (1 + share.states) + shard
    return Roofline(
        compute=batches * sequences * flops / share.slices / device.flops,
        memory=(batches * products + update) / device.bandwidth,
        link=sent(share, device, devices, batches=batches, hidden_bytes=hidden_bytes * sequences),
    )


def sent(share: Share, device: Device, devices: int, *, batches: int, hidden_bytes: int) -> float:
    """The least seconds for what goes to other devices. Arguments as for [`roofline`][].

    Returns:
        Seconds, at the speed of the slowest link that is used.
    """
    if share.strategy == Strategy.ONE:
        return 0.0
    speed = device.network if devices > NODE else device.link
    groups = devices // share.slices
    others = (groups - 1) / groups
    if share.strategy == Strategy.DDP:  # once an update: gradients there and back
        return 2 * others * share.num_parameters * FLOAT32 / speed
    # Every batch: weights for the forward and the backward pass, and their gradients.
    shards = batches * 3 * others * share.num_parameters * BFLOAT16 / speed
    slices = batches * 2 * (share.slices - 1) / share.slices * hidden_bytes / device.link
    return max(shards, slices)
