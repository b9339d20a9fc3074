"""Peers that do the same work, measured in turns."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from zoo.analysis.measuring import executed, peak_bytes
from zoo.fast.captured_steps import captured_steps_of
from zoo.fast.switches import fast_paths

STOCK = "stock"
OURS = "zoo"


@dataclass
class Peer:
    """One way to do a workload."""

    name: str  # What to call it
    run: Callable[[], object]  # Does the work once
    kind: str = STOCK  # "zoo" for ours, "stock" for its references, "other" for what is only shown
    # Gives what the work computes, to compare with the other peers; None where it cannot be compared
    result: Callable[[], Tensor] | None = None
    flops: int | None = None  # Operations of one run; by default they are counted, 0 where that would tell nothing
    weights: int = 0  # Bytes of weights that one run reads at least, where they rather than operations are the limit
    # Tells how many of its next tokens are the exact model's, as a share, where results may be others
    agreement: Callable[[], float] | None = None
    seconds: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """Measurements of one peer."""

    workload: str  # The work
    peer: str  # Who did it
    kind: str  # As in [`Peer`][]
    milliseconds: float  # Median time of one run
    ratio: float  # Median over the rounds of the fastest stock peer's time over this one's: above 1 is faster than it
    spread: float  # Half the distance between the quartiles of that ratio
    # Largest difference of its result from the first stock peer's, relative to the largest value
    deviation: float | None
    # Operations of one run in billions, attention to every position that it computes included; None unknown
    gflop: float | None = None
    # Those operations a second, as a share of what matrix products reach at most on the device
    of_limit: float | None = None
    of_bandwidth: float | None = None  # Weights read a second, as a share of what the memory gives
    # Memory that a run takes at its peak above what is allocated before and after; None if not measured
    megabytes: float | None = None
    # The share of its next tokens that are the exact model's; None where they have to be
    agreement: float | None = None


@dataclass(frozen=True)
class Machine:
    """Device that peers are measured on, and its limits."""

    device: torch.device  # Where the work is done
    limit: float  # Operations a second that matrix products reach at most
    bandwidth: float  # Bytes a second that reading gives at most
    memory: bool = False  # Whether to measure memory as well


def record_steps(generate: Callable[[], object]) -> None:
    """Let the zoo record steps of generation at once, as it does by itself after some texts."""
    with fast_paths(graph_capture="always"):
        generate()


def of_first_texts(model: Any, generate: Callable[[], object]) -> Callable[[], object]:
    """The same generation without recorded steps, as of a model's first texts."""
    known = captured_steps_of(model)

    def first() -> object:
        if known is not None:
            for recorded in (known.steps, known.counts, known.prepackings):
                recorded.clear()
            known.prepared = known.kept = None
        return generate()

    return first


def measure(
    workload: str,
    peers: list[Peer],
    rounds: int,
    seconds: float,
    machine: Machine,
) -> list[Row]:
    """Run all peers in turns, so that what else happens on the machine hits all of them; a row for each."""
    clock = clock_of(machine.device)
    deviations = {peer.name: deviation(peer, peers) for peer in peers}
    for peer in peers:
        peer.run()
        if peer.flops is None:
            peer.flops = executed(peer.run).flops
    megabytes = {peer.name: peak_bytes(peer.run, machine.device) / 1e6 for peer in peers if machine.memory}
    for turn in range(rounds):
        for peer in peers if turn % 2 else reversed(peers):
            peer.seconds.append(time_of(peer.run, seconds, machine.device, clock))
    # A speed that a peer has reached is possible, even if other work slowed the products down.
    reached = [(peer.flops or 0) / statistics.median(peer.seconds) for peer in peers]
    limit = max(machine.limit, *reached)
    best = min((peer for peer in peers if peer.kind == STOCK), key=lambda peer: statistics.median(peer.seconds))
    rows = []
    for peer in peers:
        ratios = sorted(theirs / ours for theirs, ours in zip(best.seconds, peer.seconds, strict=True))
        low, _, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else (ratios[0],) * 3
        median = statistics.median(peer.seconds)
        rows.append(
            Row(
                workload,
                peer.name,
                peer.kind,
                median * 1000,
                statistics.median(ratios),
                (high - low) / 2,
                deviations[peer.name],
                peer.flops / 1e9 if peer.flops else None,
                peer.flops / median / limit if peer.flops else None,
                peer.weights / median / machine.bandwidth if peer.weights else None,
                megabytes.get(peer.name),
                peer.agreement() if peer.agreement else None,
            )
        )
    return rows


def clock_of(device: torch.device) -> Callable[[], float]:
    """The clock: of one thread the processor's time, which other work leaves alone; of several that on the wall."""
    return time.process_time if device.type == "cpu" and torch.get_num_threads() == 1 else time.perf_counter


def name_of(clock: Callable[[], float]) -> str:
    return "processor's" if clock is time.process_time else "wall"


def time_of(run: Callable[[], object], seconds: float, device: torch.device, clock: Callable[[], float]) -> float:
    """The mean time of one run, over as many as fill a turn."""
    times = 0
    start = clock()
    while (elapsed := clock() - start) < seconds or times == 0:
        run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        times += 1
    return elapsed / times if times > 1 else clock() - start


def deviation(peer: Peer, peers: list[Peer]) -> float | None:
    """How far a peer's result is from the first stock peer's that has one."""
    reference = next((other for other in peers if other.kind == STOCK and other.result is not None), None)
    if reference is None or reference.result is None or peer.result is None:
        return None
    with torch.no_grad():
        expected, found = reference.result().double(), peer.result().double()
    return float((expected - found).abs().max() / expected.abs().max())
