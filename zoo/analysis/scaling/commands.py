"""The command that trains according to a plan."""

from __future__ import annotations

import shlex

from zoo.registry import Task

from .strategies import NODE, Share, Strategy

DATA = {
    Task.CAUSAL_LM: "language-modeling:block_size={seq_len}",
    Task.MASKED_LM: "masked-language-modeling:block_size={seq_len}",
    Task.SEQ2SEQ_LM: "translation:max_length={seq_len}",
    Task.SEQUENCE_CLASSIFICATION: "text-classification:max_length={seq_len}",
    Task.TOKEN_CLASSIFICATION: "token-classification:max_length={seq_len}",
}
"""Training task of each task of models."""

HOST, PORT = '"$HOST"', 29500
"""The first machine of several, and where its processes meet."""

SLURM = """\
#!/bin/bash
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={node}
export HOST=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun {command}
"""


def train_command(
    name: str, task: str, seq_len: int, share: Share, *, devices: int, sequences: int, batches: int, optim: str
) -> str:
    """Write the command for the processes of one machine."""
    arguments = ["train", name, "--task", DATA[Task(task)].format(seq_len=seq_len), "--data", "DATA"]
    arguments += ["--per-device-train-batch-size", str(sequences), "--gradient-accumulation-steps", str(batches)]
    arguments += ["--optim", optim]
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


def slurm_script(command: str, devices: int) -> str | None:
    """Write the script that runs a command on several machines."""
    return SLURM.format(nodes=devices // NODE, node=NODE, command=command) if devices > NODE else None
