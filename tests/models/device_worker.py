"""Runs variants on the pretended accelerator, in a process of its own, since PyTorch never forgets such a device.

    python device_worker.py NAME[/TASK] ...

prints a line of JSON for every variant, of one of its tasks if none is named: what went wrong, by what was tried.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from device_training import OPTIONS, train_with
from every_variant import ONE_TASK
from torch import nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertForTokenClassification,
    LlamaConfig,
    LlamaForCausalLM,
    MarianConfig,
    MarianMTModel,
    ModernBertConfig,
    ModernBertForMaskedLM,
)
from transformers.utils import logging

import zoo
from zoo.fast.switches import fast_paths
from zoo.models.embedding import TokenEmbedding
from zoo.scaling.simulating import Precision, step_memory
from zoo.testing.device import pretended_device
from zoo.testing.far_tensors import FarTensor
from zoo.testing.flash import written_out_flash
from zoo.testing.subjects import new_subject
from zoo.training import room
from zoo.training.arguments import training_arguments

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
    "sequence-classification": lambda: BertForSequenceClassification(BertConfig(**SIZES)),
    "token-classification": lambda: BertForTokenClassification(BertConfig(**SIZES)),
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


def evaluate(model: nn.Module, inputs: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Compute the loss and the scores."""
    with torch.no_grad():
        output = model(**inputs)
    return [output.loss, output.logits]


def write(model: Any, inputs: dict[str, torch.Tensor], **settings: Any) -> list[torch.Tensor]:
    """Write a few tokens."""
    given = {key: inputs[key] for key in ("input_ids", "attention_mask")}
    fixed = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    return [model.generate(**given, **fixed, **settings)]


Work = Callable[[Any, dict[str, torch.Tensor]], list[torch.Tensor]]


def works(task: str) -> Iterator[tuple[str, Work]]:
    """What is tried, by name."""
    yield "training", train
    yield "evaluation", evaluate
    if task in ("causal-lm", "seq2seq-lm"):
        for how, settings in WRITING.items():
            yield how, lambda model, inputs, settings=settings: write(model, inputs, **settings)


def near(values: list[torch.Tensor]) -> list[torch.Tensor]:
    return [value.there if isinstance(value, FarTensor) else value for value in values]


def inputs_of(subject: Any) -> dict[str, torch.Tensor]:
    ids = subject.inputs()["input_ids"]
    labels = subject.labels()
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids if labels is None else labels}


def check(name: str, task: str, allowed: dict[str, int], tried: Iterable[str] = ()) -> dict[str, str]:
    """Try everything with a variant, or some of it; return what went wrong."""
    subject, wrong = new_subject(name, task), {}
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
        # Dropout draws other numbers there; and the loss without logits is made in another way.
        with fast_paths(chunked_loss="always"):
            try:
                options = {"skip_logits": True} if task.endswith("-lm") else {}
                train(device.move(subject.copy()).train(), there, **options)
            except Exception as error:
                wrong["training with dropout"] = f"{type(error).__name__}: {error}"[:600]
    return wrong


def allowed_by(task: str) -> dict[str, int]:
    """How often transformers' own class of the family waits, for each thing that is tried."""
    ids = torch.randint(3, 37, (3, 7))
    labels = {"sequence-classification": ids[:, 0] % 2, "token-classification": ids % 2}.get(task, ids)
    counts = {}
    with pretended_device() as device:
        inputs = device.put({"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels})
        for what, work in works(task):
            model = device.move(PEERS[task]().eval())
            with device.counted() as waits:
                work(model, inputs)
            counts[what] = sum(waits.values())
    return counts


ON_FLASH = ("bert-style", "modernbert-style", "llama-style")


def flash(name: str) -> dict[str, str]:
    """Train on a padded batch and on a full one by FlashAttention; return what went wrong.

    transformers' ModernBERT takes padding out in every attention anew, and waits as often.
    """
    task, wrong = ONE_TASK[name], {}
    subject = new_subject(name, task)
    inputs = inputs_of(subject)
    padded = {**inputs, "attention_mask": inputs["attention_mask"].clone()}
    padded["attention_mask"][1:, 4:] = 0
    padded["labels"] = padded["labels"].masked_fill(padded["attention_mask"] == 0, -100)
    for what, given in (("padded", padded), ("full", inputs)):
        model = subject.copy()
        model.set_attn_implementation("eager")
        wanted = near(train(model, given))
        peer = ModernBertForMaskedLM(
            ModernBertConfig(**SIZES, pad_token_id=0, bos_token_id=1, eos_token_id=2, cls_token_id=1, sep_token_id=2)
        )
        with pretended_device() as device:
            counts = {}
            there, model = device.put(given), subject.copy()
            for one in (device.move(peer), device.move(model)):
                with written_out_flash(one), device.counted() as waits:
                    found = near(train(one, there))
                counts[one] = sum(waits.values())
        try:
            torch.testing.assert_close(found, wanted)
            assert counts[model] <= counts[peer], f"waits, allowed are {counts[peer]}: {waits}"
        except AssertionError as error:
            wrong[what] = str(error)[:600]
    return wrong


PLANNED: dict[str, tuple[str, bool]] = {
    "gpt2-style": ("causal-lm", False),
    "llama-style": ("causal-lm", True),
    "vanilla": ("seq2seq-lm", False),
    "bert-style": ("masked-lm", True),
}
"""Whose memory is compared with what was foreseen: by their tasks, and whether layers are computed again."""


def memory(name: str, task: str, checkpointing: bool) -> dict[str, str]:
    """Update weights twice, by two batches each; return the most memory of it, and what was foreseen."""
    sizes = {
        "hidden_size": 64,
        "num_key_value_heads": 4,
        "intermediate_size": 128,
        "num_hidden_layers": 3,
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
    planned = kept + step.activations(sequences) + step.logits(sequences)
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


def nbytes(tensor: torch.Tensor) -> int:
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


def main(names: list[str]) -> None:
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    with pretended_device():  # which PyTorch has to know before anything is differentiated
        pass
    allowed = {task: allowed_by(task) for task in PEERS}
    for case in names:
        name, _, task = case.partition("/")
        say(case, check(name, task or ONE_TASK[name], allowed[task or ONE_TASK[name]]))
    for name in ON_FLASH:
        say(f"flash of {name}", flash(name))
    for name, (task, checkpointing) in PLANNED.items():
        say(f"memory of {name}", memory(name, task, checkpointing))
    for option, arguments in OPTIONS.items():
        say(option, train_with(arguments))
    for defect, (owner, method, change) in MUTATIONS.items():
        whole = getattr(owner, method)
        setattr(owner, method, change(whole))
        say(defect, check("llama-style", "causal-lm", allowed["causal-lm"], ("training", "greedy")))
        setattr(owner, method, whole)


def say(what: str, found: dict[str, str]) -> None:
    print(json.dumps([what, found]), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
