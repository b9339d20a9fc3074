"""What each of several processes does that hold one model together. Run by test_parallel.py."""

import json
import os
import traceback
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers.distributed.configuration_utils import DistributedConfig

import zoo


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def compare(rank: int, size: int, rendezvous: str, folder: str, kind: str) -> None:
    """Load every model of a folder in slices ("tp", "fsdp") and whole, and compare logits, gradients and tokens.

    A model has `inputs.pt` in its folder, and gets `verdict.json`, with the sliced parameters or the error.
    """
    torch.set_num_threads(1)
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size))
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=size)
    for path in sorted(Path(folder).iterdir()):
        try:
            verdict = {"sliced": compare_one(path, size, kind)}
        except Exception:  # any: it is in the verdict, and the other process is not left waiting
            verdict = {"error": traceback.format_exc()}
        if rank == 0 or "error" in verdict:
            (path / f"verdict-{kind}.json").write_text(json.dumps(verdict))
        dist.barrier()
    dist.destroy_process_group()


def compare_one(path: Path, size: int, kind: str) -> list[str]:
    """Compare one model. Arguments as above; returns the names of the parameters that were sliced."""
    inputs = torch.load(path / "inputs.pt")
    alone = zoo.load(path, dtype="auto")
    config = DistributedConfig(tp_size=size) if kind == "tp" else DistributedConfig(fsdp_size=size)
    together = type(alone).from_pretrained(path, distributed_config=config, dtype="auto")
    sliced = [name for name, parameter in together.named_parameters() if isinstance(parameter, DTensor)]
    for model in (alone, together):
        model.train()
        outputs = model(**inputs)
        outputs.loss.backward()
        model.logits = outputs.logits.detach()
    torch.testing.assert_close(whole(together.logits), alone.logits)
    others = dict(together.named_parameters())
    for name, parameter in alone.named_parameters():
        torch.testing.assert_close(
            whole(others[name].grad), parameter.grad, msg=lambda text, name=name: f"{name}: {text}"
        )
    if kind == "tp" and alone.can_generate():
        for model in (alone, together):
            model.eval()
            model.tokens = model.generate(input_ids=inputs["input_ids"], max_new_tokens=4, min_new_tokens=4)
        assert together.tokens.tolist() == alone.tokens.tolist()
    return sliced
