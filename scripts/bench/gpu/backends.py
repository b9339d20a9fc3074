"""Back ends of attention against each other: the same model, the same weights, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measuring import OURS, Peer
from shapes import Scale
from torch import Tensor

import zoo
from zoo.base.errors import UnsupportedBackendError

VARIANTS = ("llama-style", "alibi-decoder", "gemma2-style")
"""Without a bias on the scores, with one, and with soft-capping and windows."""

BACKENDS = ("sdpa", "eager", "flex_attention", "flash_attention_2", "flash_attention_3")


def backends(scale: Scale, device: torch.device, dtype: torch.dtype) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
    """Every workload's name, and what builds its peers."""
    for name in VARIANTS:
        yield f"back ends, {name} training step", partial(peers, name, scale, device, dtype)


def peers(name: str, scale: Scale, device: torch.device, dtype: torch.dtype) -> list[Peer]:
    """A training step on each back end that the variant can run on and that is installed."""
    sizes = {"hidden_size": scale.width, "num_hidden_layers": scale.decoder_layers, "num_attention_heads": scale.heads}
    sizes |= {"num_key_value_heads": scale.heads, "intermediate_size": 4 * scale.width, "vocab_size": scale.vocabulary}
    settings: dict[str, Any] = {**sizes, "attention_dropout": 0.0, "dropout": 0.0, "seed": 0}
    ids = torch.randint(3, scale.vocabulary, (scale.rows[1], scale.lengths[1]), device=device)
    found: list[Peer] = []
    for backend in BACKENDS:
        if backend == "flex_attention" and device.type == "cpu":
            continue  # which has no backward pass there
        try:
            model = zoo.build(name, attn_implementation=backend, **settings).to(device).train()
        except (ImportError, UnsupportedBackendError, ValueError):
            continue  # what is not installed, or cannot do what the variant needs, has no row
        kind = OURS if found else "stock"
        found.append(Peer(backend, partial(step, model, ids, dtype), kind))
    return found


def step(model: Any, ids: Tensor, dtype: torch.dtype) -> None:
    """A forward and backward pass."""
    with torch.autocast(ids.device.type, dtype=dtype):
        loss = model(input_ids=ids, labels=ids, skip_logits=True).loss
    loss.backward()
    model.zero_grad()
