"""The pieces of a run on a GPU."""

from __future__ import annotations

import fnmatch
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from limits import bandwidth, peak, products
from measuring import Machine, Peer, measure
from shapes import GPU, TINY, Scale, bert_config, gpt2_config
from transformers import BertForMaskedLM, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from workloads import Work

import zoo
from zoo.testing import cases

Rows = list[dict[str, Any]]

MINUTES = 8
"""How long a part of nanoGPT's recipe trains before it is interrupted, to go on in the next run."""

RECIPE = ("gpt2-style", "--recipe", "nanogpt-gpu", "--resume", "--save-strategy", "steps", "--quiet", "--json")


@dataclass(frozen=True)
class Piece:
    """A part of the work that is done as a whole."""

    name: str  # What to call it
    kind: str  # What its rows are: suite, fidelity, training or speed
    run: Callable[[], Rows | None]  # Does it, and gives the rows; None where it is to be called again in another run


@dataclass(frozen=True)
class Settings:
    """How pieces are run."""

    device: torch.device  # Where
    tiny: bool  # Whether only to see that they can be
    data: Path | None  # Tiny Shakespeare, None to do without it
    folder: Path  # Where what is trained is kept

    @property
    def scale(self) -> Scale:
        return TINY if self.tiny else GPU


def pieces(settings: Settings, only: Sequence[str]) -> Iterator[Piece]:
    """The pieces with names that patterns match, in the order in which they are done."""
    for piece in every_piece(settings):
        if any(fnmatch.fnmatch(piece.name, pattern) for pattern in only):
            yield piece


def every_piece(settings: Settings) -> Iterator[Piece]:
    for name in ["pre-norm"] if settings.tiny else zoo.list_variants():
        yield Piece(f"suite, {name}", "suite", partial(suite, settings, name))
    yield Piece("fidelity", "fidelity", partial(fidelity, settings))
    if settings.data is not None:
        yield Piece("nanoGPT's recipe", "training", partial(shakespeare, settings))
    dtype, compiler = torch.bfloat16, None if settings.tiny else "inductor"
    work, plain = (Work(settings.scale, settings.device, dtype, one) for one in (compiler, None))
    padded = [  # which compiled models keep
        (f"{name}, not compiled", peers)
        for name, peers in plain.workloads()
        if "padd" in name and "no padding" not in name
    ]
    for name, peers in (*work.workloads(), *padded, *work.graphs(), *work.backends()):
        yield Piece(name, "speed", partial(speed, settings, name, peers))


def suite(settings: Settings, name: str) -> Rows:
    """Checks that every variant must pass, as `pytest --device` runs them."""
    failed: dict[str, str] = {}
    listed = cases(name)[:6] if settings.tiny else cases(name)
    with settings.device:
        for case in listed:
            try:
                case()
            except Exception as error:  # whatever a kernel raises is what this is to find
                failed[str(case)] = f"{type(error).__name__}: {error}"[:300]
    return [{"variant": name, "checks": len(listed), "failed": failed}]


def fidelity(settings: Settings) -> Rows:
    """How far converted models are from transformers' own, in float32 and bfloat16, without padding and with it."""
    scale, rows = settings.scale, []
    sizes = {"vocab_size": scale.vocabulary, "hidden_size": scale.width, "intermediate_size": 4 * scale.width}
    llama = LlamaConfig(**sizes, num_hidden_layers=scale.layers, num_attention_heads=scale.heads)
    families: dict[str, Callable[[], Any]] = {
        "BERT": lambda: BertForMaskedLM(bert_config(scale)),
        "GPT-2": lambda: GPT2LMHeadModel(gpt2_config(scale)),
        "Llama": lambda: LlamaForCausalLM(llama),
    }
    length = scale.lengths[0]
    ids = torch.randint(3, scale.vocabulary, (2, length), device=settings.device)
    whole = torch.ones_like(ids)
    padded = (torch.arange(length, device=settings.device) < torch.tensor([[length], [length // 3]]).to(ids)).long()
    for family, build in families.items():
        for dtype in (torch.float32, torch.bfloat16):
            theirs = build().to(settings.device, dtype).eval()
            ours = zoo.convert(theirs).to(settings.device).eval()
            ours.config.use_cache = False  # with which padding stays
            for words, mask in (("", whole), (", padded", padded)):
                with torch.no_grad():
                    found = [model(input_ids=ids, attention_mask=mask).logits[mask.bool()] for model in (theirs, ours)]
                wanted, logits = (one.float() for one in found)
                deviation = float((logits - wanted).abs().max() / wanted.abs().max())
                kind = str(dtype).removeprefix("torch.")
                rows.append({"family": f"{family}{words}", "dtype": kind, "deviation": deviation})
    return rows


def shakespeare(settings: Settings) -> Rows | None:
    """Train by nanoGPT's recipe for a GPU, for some minutes at a time."""
    folder = settings.folder / "shakespeare"
    steps = ["--max-steps", "2", "--save-steps", "1", "--training", "eval_steps=1"] if settings.tiny else []
    small = ["--set", "num_hidden_layers=1", "--set", "hidden_size=12", "--task", "language-modeling:block_size=16"]
    longer = [*steps, *small, "--use-cpu"] if settings.tiny else ["--save-steps", "250"]
    command = [sys.executable, "-m", "zoo", "train", *RECIPE, "--data", str(settings.data), "-o", str(folder), *longer]
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * MINUTES, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
        report = json.loads(done.stdout)
        keys = ("heldout_loss", "steps", "train_seconds", "train_tokens", "peak_memory")
        return [{key: report.get(key) for key in keys}]
    return None


def speed(settings: Settings, name: str, peers: Callable[[], list[Peer]]) -> Rows:
    torch.compiler.reset()  # models of one class would use up the number of times that it is compiled
    device, dtype = settings.device, torch.bfloat16
    limit = peak(device, "bfloat16") or products(device, dtype)
    rounds, seconds = (1, 0.0) if settings.tiny else (7, 0.5)
    return [
        asdict(row) for row in measure(name, peers(), rounds, seconds, Machine(device, limit, bandwidth(device), True))
    ]
