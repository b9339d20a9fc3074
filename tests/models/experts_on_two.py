"""Balances experts under DDP in every process, for test_experts.py; the first one saves its bias."""

import sys

import torch
from torch import Tensor, distributed
from torch.nn.parallel import DistributedDataParallel

import zoo
from zoo.models import ZooPreTrainedModel, balance_experts


def routed() -> tuple[ZooPreTrainedModel, Tensor]:
    """A model, and ids of two batches for each of two processes."""
    model = zoo.build("deepseek-moe@tiny", "causal-lm", vocab_size=37, seed=0, dropout=0.0).train()
    return model, torch.randint(37, (2, 2, 3, 9), generator=torch.Generator().manual_seed(0))


def bias(model: ZooPreTrainedModel) -> Tensor:
    balance_experts(model)
    return torch.stack([module.balance_bias for module in model.modules() if hasattr(module, "balance_bias")])


if __name__ == "__main__":
    distributed.init_process_group("gloo")
    model, ids = routed()
    parallel = DistributedDataParallel(model, find_unused_parameters=True)
    for batch in ids[distributed.get_rank()]:  # gradients of both are reduced, without no_sync
        parallel(input_ids=batch, labels=batch).loss.backward()
    found = bias(model)
    if distributed.get_rank() == 0:
        torch.save(found, sys.argv[1])
    distributed.destroy_process_group()
