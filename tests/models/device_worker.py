"""Runs variants on the pretended accelerator, in a process of its own, since PyTorch never forgets such a device.

    python device_worker.py NAME ...

prints a line of JSON for every variant: what went wrong, by what was tried.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from every_variant import ONE_TASK
from torch import nn
from transformers import BertConfig, BertForMaskedLM, LlamaConfig, LlamaForCausalLM, MarianConfig, MarianMTModel
from transformers.utils import logging

from zoo.fast.switches import fast_paths
from zoo.models.embedding import TokenEmbedding
from zoo.testing.device import FarTensor, PretendedDevice, pretended_device
from zoo.testing.subjects import new_subject

WRITING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 2},
    "static cache": {"cache_implementation": "static"},
}
TOKENS = 3
SIZES = {"vocab_size": 40, "hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
STACKS = {f"{stack}_{name}": size for stack in ("encoder", "decoder") for name, size in
          (("layers", 2), ("attention_heads", 2), ("ffn_dim", 8))}  # fmt: skip
IDS = {"pad_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 1}
PEERS: dict[str, Callable[[], nn.Module]] = {
    "causal-lm": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "masked-lm": lambda: BertForMaskedLM(BertConfig(**SIZES)),
    "seq2seq-lm": lambda: MarianMTModel(
        MarianConfig(vocab_size=40, d_model=8, max_position_embeddings=64, forced_eos_token_id=None, **STACKS, **IDS)
    ),
}


def train(model: nn.Module, inputs: dict[str, torch.Tensor], **options: Any) -> list[torch.Tensor]:
    """Take a step; return the loss and what the weights are then."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(**inputs, **options).loss
    loss.backward()
    optimizer.step()
    return [loss.detach(), *(parameter.detach() for parameter in model.parameters())]


def write(model: Any, inputs: dict[str, torch.Tensor], **settings: Any) -> list[torch.Tensor]:
    """Write a few tokens."""
    given = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    fixed = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    return [model.generate(**given, **fixed, **settings)]


Work = Callable[[Any, dict[str, torch.Tensor]], list[torch.Tensor]]


def works(task: str) -> Iterator[tuple[str, Work]]:
    """What is tried, by name."""
    yield "training", train
    if task != "masked-lm":
        for how, settings in WRITING.items():
            yield how, lambda model, inputs, settings=settings: write(model, inputs, **settings)


def near(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.there if isinstance(value, FarTensor) else value for value in values]


def inputs_of(subject: Any) -> dict[str, torch.Tensor]:
    ids = subject.inputs()["input_ids"]
    labels = subject.labels()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids if labels is None else labels}


def check(device: PretendedDevice, name: str, task: str, allowed: dict[str, int]) -> dict[str, str]:
    """Try everything with a variant; return what went wrong."""
    subject, wrong = new_subject(name, task), {}
    inputs = inputs_of(subject)
    for what, work in works(task):
        try:
            wanted = near(work(subject.copy(), inputs))
            model, there = device.move(subject.copy()), device.put(inputs)
            with device.counted() as waits:
                found = near(work(model, there))
            torch.testing.assert_close(found, wanted)
            assert sum(waits.values()) <= allowed[what], f"waits for the device, allowed are {allowed[what]}: {waits}"
        except Exception as error:
            wrong[what] = f"{type(error).__name__}: {error}"[:600]
    # Dropout draws other numbers there; and the loss without logits is made in another way.
    with fast_paths(chunked_loss="always"):
        try:
            train(device.move(subject.copy()).train(), device.put(inputs), skip_logits=True)
        except Exception as error:
            wrong["training with dropout"] = f"{type(error).__name__}: {error}"[:600]
    return wrong


def allowed_by(device: PretendedDevice, task: str) -> dict[str, int]:
    """How often transformers' own class of the family waits, for each thing that is tried."""
    ids = torch.randint(3, 37, (3, 7))
    inputs = device.put({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids})
    counts = {}
    for what, work in works(task):
        model = device.move(PEERS[task]().eval())
        with device.counted() as waits:
            work(model, inputs)
        counts[what] = sum(waits.values())
    return counts


MUTATIONS: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "made on the wrong device": (
        TokenEmbedding,
        "forward",
        lambda forward: lambda self, *args: forward(self, *args) + torch.zeros(1, 1, 64),
    ),
    "asked for a value": (
        TokenEmbedding,
        "forward",
        lambda forward: lambda self, ids, *args: forward(self, ids, *args) * float(bool((ids >= 0).all())),
    ),
}
"""Defects that have to be found: what is replaced, and by what."""


def main(names: list[str]) -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with pretended_device() as device:
        allowed = {task: allowed_by(device, task) for task in PEERS}
        for name in names:
            print(json.dumps([name, check(device, name, ONE_TASK[name], allowed[ONE_TASK[name]])]), flush=True)
        for defect, (owner, method, change) in MUTATIONS.items():
            whole = getattr(owner, method)
            setattr(owner, method, change(whole))
            print(json.dumps([defect, check(device, "llama-style", "causal-lm", allowed["causal-lm"])]), flush=True)
            setattr(owner, method, whole)


if __name__ == "__main__":
    main(sys.argv[1:])
