"""Plans of training a variant on a number of devices."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from zoo.analysis.own_settings import resolve
from zoo.base.errors import ConfigError, InvalidChoiceError
from zoo.base.printed import table_in_markdown
from zoo.models import ZooConfig
from zoo.models.validation import require_at_least
from zoo.registry import VARIANTS, Task, parse_name

from .strategies import (
    BFLOAT16,
    FLOAT32,
    LOW_RANK,
    NODE,
    OPTIMIZERS,
    Device,
    Memory,
    Share,
    Strategy,
    cache_of,
    find_device,
    flops_of,
    hollow,
    share_of,
)

DATA = {
    Task.CAUSAL_LM: "language-modeling:block_size={seq_len}",
    Task.MASKED_LM: "masked-language-modeling:block_size={seq_len}",
    Task.SEQ2SEQ_LM: "translation:max_length={seq_len}",
    Task.SEQUENCE_CLASSIFICATION: "text-classification:max_length={seq_len}",
    Task.TOKEN_CLASSIFICATION: "token-classification:max_length={seq_len}",
}
"""Training task of each task of models."""

HOST, PORT = '"$HOST"', 29500  # The first machine of several, and where its processes meet

SLURM = """\
#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={node}
export HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {command}
"""


def train_command(
    what: Sequence[str], data: str, share: Share, *, devices: int, sequences: int, batches: int, optim: str
) -> str:
    arguments = ["train", *what, "--data", data]
    arguments += ["--per-device-train-batch-size", str(sequences), "--gradient-accumulation-steps", str(batches)]
    arguments += ["--optim", optim]
    if optim.startswith(LOW_RANK):
        arguments += ["--training", "optim_target_modules=all-linear"]
    if share.checkpointing:
        arguments += ["--training", "gradient_checkpointing=True"]
    program = ["-m", "zoo", *arguments]
    if share.strategy == Strategy.ONE:
        return shlex.join(["zoo", *arguments])
    nodes = -(-devices // NODE)
    if share.strategy == Strategy.DDP:
        processes = ["--nproc_per_node", str(min(devices, NODE))]
        if nodes == 1:
            return shlex.join(["torchrun", "--standalone", *processes, *program])
        meeting = f"--rdzv_backend c10d --rdzv_endpoint {HOST}:{PORT}"
        return f"torchrun --nnodes {nodes} {shlex.join(processes)} {meeting} {shlex.join(program)}"
    launch = ["accelerate", "launch", "--num_processes", str(devices), "--mixed_precision", "bf16", "--dynamo_backend"]
    launch += ["no", "--use_fsdp", "--fsdp_version", "2", "--fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"]
    launch += ["--num_machines", str(nodes)]
    if share.strategy == Strategy.TENSOR_PARALLEL:
        launch += ["--use_parallelism_config", "--parallelism_config_tp_size", str(share.slices)]
        launch += ["--parallelism_config_dp_shard_size", str(share.shards)]
        program = ["train.py"]
    if nodes == 1:
        return shlex.join([*launch, *program])
    meeting = f"--rdzv_backend c10d --main_process_ip {HOST} --main_process_port {PORT}"
    return f"{shlex.join(launch)} {meeting} {shlex.join(program)}"


@dataclass(frozen=True)
class Roofline:
    """The least seconds that an update takes on a device, by what it waits for. The largest is the bound."""

    compute: float  # Matrix products at the peak of the device
    memory: float  # Weights, gradients, states and activations, each read and written as often as it must be
    link: float  # Gradients, weights or activations that go to other devices

    @property
    def seconds(self) -> float:
        """The least seconds of an update, if everything happens at the same time."""
        return max(self.compute, self.memory, self.link)

    @property
    def bound(self) -> str:
        """Bottleneck: compute, memory or link."""
        return max(("compute", "memory", "link"), key=lambda name: getattr(self, name))


def roofline(
    share: Share, device: Device, devices: int, *, sequences: int, batches: int, flops: float, hidden_bytes: int
) -> Roofline:
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
    """The least seconds for what goes to other devices."""
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


def exchanged_bytes(config: ZooConfig, seq_len: int) -> int:
    """Bytes of a sequence that tensor parallelism adds up: each sublayer's output, and the gradient of its input."""
    layers = config.num_hidden_layers + config.prediction_depth
    sublayers = 2 * layers + 3 * (config.decoder_layers or 0)  # cross attention is the third
    return 2 * sublayers * seq_len * config.hidden_size * BFLOAT16


USABLE = 0.9  # The share of a device's memory that a plan fills: CUDA's context, workspaces and gaps take the rest
UPDATE = 2**19  # Default tokens of an update: half a million, as GPT-3's smaller models had (Brown et al. 2020).
LONGEST = 1024  # Default tokens of a sequence, without a table of positions that limits them

GIB = 2**30
UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": GIB}

ORDER = (
    (Strategy.DDP, False),
    (Strategy.FSDP2, False),
    (Strategy.DDP, True),
    (Strategy.FSDP2, True),
    (Strategy.TENSOR_PARALLEL, True),
)
ORDER_OF_ONE = ((Strategy.ONE, False), (Strategy.ONE, True))
"""Strategies and whether layers are computed again, from the fastest to the one that fits the largest models."""


@dataclass(frozen=True)
class Plan:
    """A plan of training a variant on a number of devices."""

    name: str  # The variant's name with its settings, or where the model was saved
    task: str  # Task of the model
    num_parameters: int  # Of the model, each shared one counted once
    device: Device  # Kind of device
    devices: int  # Their number
    available: int  # Bytes of each
    seq_len: int  # Tokens of a sequence
    strategy: Strategy  # How a training step is spread over them
    checkpointing: bool  # Whether layers are computed again in the backward pass
    sequences: int  # Of a batch on a device
    batches: int  # How many of them make an update, gradients adding up
    memory: Memory  # Bytes on a device at the peak
    cache: int | None  # Bytes that a sequence's keys and values take while it is generated, in bfloat16
    tokens_per_update: int  # On all devices
    tokens_per_second: float  # The most that all devices can read together, by the roofline
    roofline: Roofline  # The least seconds of an update, by what is waited for
    command: str  # Command that starts it; with several machines, on each of them
    slurm: str | None  # With several machines, what `sbatch` takes

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def plan(
    name: str,
    task: str | None = None,
    *,
    devices: int = 8,
    device: str = "h100",
    memory: int | str | None = None,
    seq_len: int | None = None,
    tokens_per_update: int = UPDATE,
    optim: str = "adamw_torch_fused",
    what: Sequence[str] | None = None,
    data: str = "DATA",
) -> Plan:
    """Plan how to train a variant, without allocating it: strategy, memory, the most tokens a second, the command.

    Args:
        name: A variant's name, possibly with settings, such as sizes; or a checkpoint's folder, or the name of weights,
            for an architecture such as theirs.
        task: Task of the model, by default the variant's first task.
        devices: Their number; more than 8 are machines of 8 each.
        device: A name in `zoo.analysis.scaling.DEVICES`.
        memory: Bytes of each, or "80GiB"; by default the device's.
        seq_len: Tokens of a sequence; of source and target each, if it has both. By default as many as the
            model's positions.
        tokens_per_update: About how many; the most that one batch on all devices has.
        optim: The optimiser, as for [`zoo.train`][].
        what: Subject of the command, such as a variant with a recipe; by default the variant on a task.
        data: Data of the command: a file, a folder or a corpus.

    Returns:
        The plan: the fastest strategy that fits, layers computed again only where nothing else does.

    Raises:
        ZooError: When a name is unknown, a number is not valid, or nothing fits.
    """
    given, (name, task) = name, resolve(name, task)
    if task not in DATA:
        valid = [one for one in VARIANTS.get(parse_name(name).name).tasks if one in DATA]
        raise ConfigError(f"{given!r} is not trained for {task}; valid: {', '.join(valid)}")
    InvalidChoiceError.check(optim, valid=OPTIMIZERS, kind="optim")
    if devices < 1 or (devices > NODE and devices % NODE):
        raise ConfigError(f"devices={devices} is not valid; valid: 1 to {NODE}, and multiples of {NODE}")
    require_at_least(1, tokens_per_update=tokens_per_update, seq_len=1 if seq_len is None else seq_len)
    chosen = find_device(device)
    available = chosen.memory if memory is None else parse_bytes(memory)
    model = hollow(name, task)
    seq_len = seq_len or getattr(model.config, "max_position_embeddings", None) or LONGEST
    flops = flops_of(name, task, seq_len)
    share = fitting(name, task, seq_len, devices, available, optim)
    replicas = devices // share.slices
    most = max(1, tokens_per_update // (flops.tokens * replicas))
    sequences = largest(share, available, most)
    batches = max(1, round(tokens_per_update / (flops.tokens * replicas * sequences)))
    bound = roofline(
        share,
        chosen,
        devices,
        sequences=sequences,
        batches=batches,
        flops=flops.training + (flops.forward if share.checkpointing else 0),
        hidden_bytes=exchanged_bytes(model.config, seq_len),
    )
    tokens = flops.tokens * replicas * sequences * batches
    what = what or [name, "--task", DATA[Task(task)].format(seq_len=seq_len)]
    command = train_command(what, data, share, devices=devices, sequences=sequences, batches=batches, optim=optim)
    return Plan(
        name=given,
        task=task,
        num_parameters=model.num_parameters(),
        device=chosen,
        devices=devices,
        available=available,
        seq_len=seq_len,
        strategy=share.strategy,
        checkpointing=share.checkpointing,
        sequences=sequences,
        batches=batches,
        memory=share.memory(sequences),
        cache=cache_of(name, task, seq_len),
        tokens_per_update=tokens,
        tokens_per_second=tokens / bound.seconds,
        roofline=bound,
        command=command,
        slurm=SLURM.format(nodes=devices // NODE, node=NODE, command=command) if devices > NODE else None,
    )


def fitting(name: str, task: str, seq_len: int, devices: int, available: int, optim: str) -> Share:
    """Find the fastest strategy with which a sequence fits on a device."""
    least: list[int] = []
    reasons: list[str] = []
    for strategy, checkpointing in ORDER if devices > 1 else ORDER_OF_ONE:
        try:
            share = share_of(name, task, seq_len, devices, strategy, checkpointing=checkpointing, optim=optim)
        except ConfigError as error:
            reasons.append(str(error))
            continue
        needed = share.memory(1).total
        if needed <= USABLE * available:
            return share
        least.append(needed)
    why = f" ({'; '.join(dict.fromkeys(reasons))})" if reasons else ""
    raise ConfigError(
        f"{name!r} does not fit: a sequence of {seq_len:,} tokens takes {min(least) / GIB:,.1f} GiB on each of "
        f"{devices} devices, which have {available / GIB:,.1f} GiB (a plan uses {USABLE:.0%}){why}; take "
        "more devices, shorter sequences, or a smaller model"
    )


def largest(share: Share, available: int, most: int) -> int:
    sequences = 1
    while 2 * sequences <= most and share.memory(2 * sequences).total <= USABLE * available:
        sequences *= 2
    return sequences


def parse_bytes(memory: int | str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]I?B)", str(memory).strip().upper())
    size = memory if isinstance(memory, int) else int(float(found[1]) * UNITS[found[2]]) if found else 0
    if size < 1:
        raise ConfigError(f"memory={memory!r} is no size; valid: for instance 80GiB, 24GB or 24576MiB")
    return size


COLUMNS = (
    *("Devices", "Strategy", "Batch", "Weights", "Gradients", "Optimiser", "Gathered", "Activations", "Logits"),
    *("GiB in all", "Tokens/s at most", "Bound"),
)


def row(plan: Plan) -> tuple[str, ...]:
    again = ", layers computed again" if plan.checkpointing else ""
    sizes = [f"{size / GIB:.1f}" for size in dataclasses.astuple(plan.memory)]
    speed = f"{plan.tokens_per_second:,.0f}"
    batch = f"{plan.batches} × {plan.sequences}"
    total = f"{plan.memory.total / GIB:.1f}"
    return (f"{plan.devices}", f"{plan.strategy.value}{again}", batch, *sizes, total, speed, plan.roofline.bound)


def heading(plan: Plan) -> str:
    return (
        f"{plan.name} for {plan.task}: {plan.num_parameters:,} parameters, sequences of {plan.seq_len:,} tokens, "
        f"{plan.device.name} with {plan.available / GIB:.1f} GiB"
    )


def to_markdown(plans: Iterable[Plan]) -> str:
    plans = list(plans)
    rule = ["---:", "---", *["---:"] * (len(COLUMNS) - 3), "---"]
    lines = [f"**{heading(plans[0])}**", "", table_in_markdown(COLUMNS, map(row, plans), rule)]
    for plan in plans:
        lines += ["", f"On {plan.devices}:", "", "```sh", (plan.slurm or plan.command).rstrip(), "```"]
    return "\n".join(lines) + "\n"
