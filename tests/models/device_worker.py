"""Runs models on the pretended accelerator, in a process of its own, since PyTorch never forgets such a device.

    python device_worker.py "run llama-style" "run vanilla/seq2seq-lm" "trainer plain/llama-style" ...

prints a line of JSON for every case: what went wrong, by what was tried, or what was found.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest import mock

import torch
from every_variant import ONE_TASK
from models.device_peers import OWN_PEERS, PEERS, modernbert
from models.device_training import train_with
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils import logging

import zoo
from zoo.analysis.scaling.simulating import Precision, step_memory
from zoo.fast import unpadding as variable_length
from zoo.fast.switches import fast_paths
from zoo.models.embedding import TokenEmbedding
from zoo.testing.backends import attend_by_sequence, written_out_flash
from zoo.testing.device import FarTensor, pretended_device
from zoo.testing.fast_paths import rows_of_layers
from zoo.testing.subjects import new_subject
from zoo.training import preflight as room
from zoo.training.arguments import training_arguments

WRITING: dict[str, dict[str, Any]] = {
    "greedy": {},
    "beams": {"num_beams": 2},
    "static cache": {"cache_implementation": "static"},
}
TOKENS = 3


def train(model: nn.Module, inputs: dict[str, Tensor], **options: Any) -> list[Tensor]:
    """Take a step; return the loss and what the weights are then."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss = model(**inputs, **options).loss
    loss.backward()
    optimizer.step()
    return [loss.detach(), *(parameter.detach() for parameter in model.parameters())]


def evaluate(model: nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Compute the loss and the scores."""
    with torch.no_grad():
        output = model(**inputs)
    return [output.loss, output.logits]


def write(model: Any, inputs: dict[str, Tensor], **settings: Any) -> list[Tensor]:
    """Write a few tokens."""
    given = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    fixed = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    return [model.generate(**given, **fixed, **settings)]


Work = Callable[[Any, dict[str, Tensor]], list[Tensor]]


def works(task: str) -> Iterator[tuple[str, Work]]:
    """What is tried, by name."""
    yield "training", train
    yield "evaluation", evaluate
    if task in ("causal-lm", "seq2seq-lm"):
        for how, settings in WRITING.items():
            yield how, lambda model, inputs, settings=settings: write(model, inputs, **settings)


def near(values: list[Tensor]) -> list[Tensor]:
    return [value.there if isinstance(value, FarTensor) else value for value in values]


def inputs_of(subject: Any) -> dict[str, Tensor]:
    ids = subject.inputs()["input_ids"]
    labels = subject.labels()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids if labels is None else labels}


def check(name: str, tried: Iterable[str] = ()) -> dict[str, str]:
    """Try everything (or `tried`) with VARIANT or VARIANT/TASK; return what went wrong."""
    name, _, task = name.partition("/")
    task = task or ONE_TASK[name]
    subject, wrong, allowed = new_subject(name, task), {}, allowed_by(OWN_PEERS.get(name, PEERS[task]), task)
    inputs = inputs_of(subject)
    chosen = {what: work for what, work in works(task) if what in tried or not tried}
    wanted = {what: near(work(subject.copy(), inputs)) for what, work in chosen.items()}
    with pretended_device() as device:
        there = device.put(inputs)
        for what, work in chosen.items():
            try:
                model = device.move(subject.copy())
                with device.counted() as waits:
                    found = near(work(model, there))
                torch.testing.assert_close(found, wanted[what])
                assert sum(waits.values()) <= allowed[what], f"waits for the device, allowed {allowed[what]}: {waits}"
            except Exception as error:
                wrong[what] = f"{type(error).__name__}: {error}"[:600]
        options = {"skip_logits": True} if task.endswith("-lm") else {}
        for what, dropout in {"training without logits": False, "training with dropout": True}.items():
            try:
                with fast_paths(chunked_loss="always"):
                    model = device.move(subject.copy()).train(dropout)
                    with device.counted() as waits:
                        found = near(train(model, there, **options))
                    further = dropout and getattr(model, "mtp", None) is not None  # which has a mask of its own
                    most = allowed["training"] + further
                    assert sum(waits.values()) <= most, f"waits for the device, allowed {most}: {waits}"
                    if not dropout:  # which draws other numbers there
                        torch.testing.assert_close(found, near(train(subject.copy(), inputs, **options)))
            except Exception as error:
                wrong[what] = f"{type(error).__name__}: {error}"[:600]
    return wrong


@cache
def allowed_by(peer: Callable[[], PreTrainedModel], task: str) -> dict[str, int]:
    """How often transformers' own class of the family waits, for each thing that is tried."""
    ids = torch.randint(3, 37, (3, 7))
    labels = {"sequence-classification": ids[:, 0] % 2, "token-classification": ids % 2}.get(task, ids)
    counts = {}
    with pretended_device() as device:
        inputs = device.put({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
        for what, work in works(task):
            model = device.move(peer().eval())
            with device.counted() as waits:
                work(model, inputs)
            counts[what] = sum(waits.values())
    return counts


@contextmanager
def written_out_kernel(*models: nn.Module) -> Iterator[None]:
    """Have the pretended device for a GPU with PyTorch's variable-length attention, in float64."""

    def attend(*states: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool) -> Tensor:
        return attend_by_sequence(*states, softmax_scale=scale, window_size=window_size)

    with (
        mock.patch.object(variable_length, "HALF", (torch.float64,)),
        mock.patch.object(variable_length, "has_kernel", lambda device: True),
        mock.patch("zoo.fast.attention.has_kernel", lambda device: True),
        mock.patch.object(variable_length, "kernel", lambda: attend),
    ):
        yield


def without_padding(case: str) -> dict[str, str]:
    """Train on a padded batch and a full one by attention that takes lengths: "VARIANT/flash" or "VARIANT/sdpa".

    Other results than on eager attention on the CPU are wrong, and more waits than ModernBERT's on FlashAttention.
    """
    name, _, backend = case.partition("/")
    task, wrong = ONE_TASK[name], {}
    on_flash = backend == "flash"
    subject = new_subject(name, task)
    inputs = inputs_of(subject)
    padded = {**inputs, "attention_mask": inputs["attention_mask"].clone()}
    padded["attention_mask"][1:, 4:] = 0
    if task != "seq2seq-lm":
        padded["labels"] = padded["labels"].masked_fill(padded["attention_mask"] == 0, -100)
    for what, given in (("padded", padded), ("full", inputs)):
        model = subject.copy()
        model.set_attn_implementation("eager")
        wanted = near(train(model, given))
        peer, model, counts = modernbert() if on_flash else PEERS[task](), subject.copy(), {}
        with pretended_device() as device:
            there = device.put(given)
            for one in (device.move(peer), device.move(model)):
                written_out = written_out_flash if on_flash else written_out_kernel
                with written_out(one), device.counted() as waits, rows_of_layers() as rows:
                    found = near(train(one, there))
                counts[one] = sum(waits.values())
        try:
            torch.testing.assert_close(found, wanted)
            assert rows == {1}, f"layers ran on batches of {rows}"
            assert counts[model] <= counts[peer], f"waits, allowed are {counts[peer]}: {waits}"
        except AssertionError as error:
            wrong[what] = str(error)[:600]
    return wrong


def memory(case: str) -> dict[str, str]:
    """Most memory of two updates by two batches each, and what was foreseen: "VARIANT/whole" or "VARIANT/again"."""
    name, _, kept_layers = case.partition("/")
    task, checkpointing = ONE_TASK[name], kept_layers == "again"
    sizes = {
        "hidden_size": 64,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "vocab_size": 300,
    }
    sequences, seq_len = 6, 40
    model = zoo.build(
        name, task, attn_implementation="eager", dropout=0.0, attention_dropout=0.0, seed=0, **sizes
    ).train()
    options = {"precision": Precision.FLOAT32, "checkpointing": checkpointing, "whole_logits": True}
    step = step_memory(model, seq_len, **options)
    kept = sum(parameter.nbytes for parameter in model.parameters()) * 4 + sum(map(nbytes, model.buffers()))
    planned = kept + step.body.at(sequences) + step.logits(sequences)
    given = {"per_device_train_batch_size": sequences, "gradient_checkpointing": checkpointing, "use_cpu": True}
    preflight = room.step_memory(model, training_arguments(given, output_dir="unused", seed=0), seq_len)
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    with pretended_device() as device:
        before = device.allocated.peak = device.allocated.held
        device.move(model)
        optimizer = torch.optim.AdamW(model.parameters(), foreach=False)
        ids = device.put({"input_ids": torch.randint(3, 300, (sequences, seq_len))})["input_ids"]
        for batch in range(4):
            model(input_ids=ids, labels=ids).loss.backward()
            if batch % 2:
                optimizer.step()
                optimizer.zero_grad(set_to_none=False)
        found = device.allocated.peak - before
    return {"planned": str(planned), "preflight": str(preflight), "found": str(found)}


def nbytes(tensor: Tensor) -> int:
    return tensor.nbytes


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


def mutated(defect: str) -> dict[str, str]:
    """Train and write with a defect; return what went wrong, as it should."""
    owner, method, change = MUTATIONS[defect]
    whole = getattr(owner, method)
    setattr(owner, method, change(whole))
    try:
        return check("llama-style", ("training", "greedy"))
    finally:
        setattr(owner, method, whole)


KINDS: dict[str, Callable[[str], dict[str, str]]] = {
    "run": check,
    "unpadded": without_padding,
    "memory": memory,
    "trainer": train_with,
    "defect": mutated,
}


def main(cases: list[str]) -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with pretended_device():  # which PyTorch has to know before anything is differentiated
        pass
    for case in cases:
        kind, _, what = case.partition(" ")
        try:
            found = KINDS[kind](what)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}"[:600]}
        print(json.dumps([case, found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
