"""Work that only an accelerator gains by: a decode step that is recorded once and replayed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from measuring import OURS, Peer
from shapes import Scale, gpt2_config
from torch import Tensor
from transformers import CompileConfig, GPT2LMHeadModel

import zoo


class AcceleratedWork:
    """Builds the peers of every workload; tiny steps are only traced, to see that they can be."""

    def __init__(self, scale: Scale, device: torch.device, dtype: torch.dtype, *, tiny: bool) -> None:
        self.scale = scale
        self.device = device
        self.dtype = dtype
        self.tiny = tiny

    def workloads(self) -> Iterator[tuple[str, Callable[[], list[Peer]]]]:
        """Every workload's name, and what builds its peers."""
        for rows in (1, 8):
            yield f"generation, static cache and graphs, batch {rows}", partial(self.generation, rows)

    def generation(self, rows: int) -> list[Peer]:
        """Greedy continuation, with a growing and with a static cache."""
        theirs = GPT2LMHeadModel(gpt2_config(self.scale)).to(self.device, self.dtype).eval()
        ours = zoo.convert(theirs)
        generator = torch.Generator().manual_seed(0)
        length = max(2, self.scale.lengths[1] // 8)
        ids = torch.randint(3, self.scale.vocabulary, (rows, length), generator=generator).to(self.device)
        static = {"cache_implementation": "static", "compile_config": self.compile_config()}
        return [
            self.generating("GPT2LMHeadModel, dynamic cache", "stock", theirs, ids),
            self.generating("GPT2LMHeadModel, static cache", "other", theirs, ids, **static),
            self.generating("zoo, dynamic cache", "other", ours, ids),
            self.generating("zoo, static cache", OURS, ours, ids, **static),
        ]

    def compile_config(self) -> CompileConfig:
        """How a step is compiled: into a CUDA graph, or for a dry run only traced."""
        if not self.tiny:
            return CompileConfig(mode="reduce-overhead", fullgraph=True, dynamic=False)
        config = CompileConfig(backend="eager", mode="default", fullgraph=True, dynamic=False)
        config._compile_all_devices = True
        return config

    def generating(self, name: str, kind: str, model: Any, ids: Tensor, **options: Any) -> Peer:
        """A peer that generates."""
        tokens = self.scale.new_tokens
        model.generation_config.eos_token_id = None  # no model stops early
        run = partial(
            model.generate,
            ids,
            attention_mask=torch.ones_like(ids),
            do_sample=False,
            max_new_tokens=tokens,
            **options,
        )
        # In bfloat16 one close decision may fall otherwise, and all that follows.
        return Peer(name, run, kind, run if self.dtype == torch.float32 else None, flops=0)
