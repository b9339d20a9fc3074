"""The trainer's options, one run each on the pretended device and on the CPU, and how often each waits."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PrinterCallback, Seq2SeqTrainer

import zoo
from zoo.testing.device import PretendedDevice, pretended_device
from zoo.training.arguments import training_arguments
from zoo.training.trainer import ZooTrainer

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "checkpointing": {"gradient_checkpointing": True},
    "reentrant checkpointing": {
        "gradient_checkpointing": True,
        "gradient_checkpointing_kwargs": {"use_reentrant": True},
    },
    "accumulation": {"gradient_accumulation_steps": 2},
    "label smoothing": {"label_smoothing_factor": 0.1},
    "no clipping": {"max_grad_norm": 0},
    "muon": {"optim": "muon"},
    "adafactor": {"optim": "adafactor"},
    "sgd": {"optim": "sgd"},
    "bfloat16": {"bf16": True},
    "by length": {"train_sampling_strategy": "group_by_length"},
    "evaluation": {"eval_strategy": "steps", "eval_steps": 1},
}

AT_THE_END = 2
"""How often the zoo's trainer looks back beside transformers': at the tokens, and whether a loss was no number."""

VOCABULARY = 60


class Rows(list[dict[str, torch.Tensor]]):
    """A few sequences, and how long they are."""

    lengths = (7,) * 8


def rows() -> Rows:
    ids = torch.randint(3, VOCABULARY, (8, 7), generator=torch.Generator().manual_seed(0))
    return Rows({"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids)


def collate(batch: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.stack([row[name] for row in batch]) for name in batch[0]}


def weights_after(kind: Any, model: PreTrainedModel, device: PretendedDevice | None, **given: Any) -> list[Any]:
    """Train for three steps, and return the weights as they are then."""
    AcceleratorState._reset_state(True)
    plain = {"use_cpu": True, "max_steps": 3, "per_device_train_batch_size": 2, "logging_steps": 50}
    with tempfile.TemporaryDirectory() as folder:
        args = training_arguments({**plain, "learning_rate": 0.01, **given}, output_dir=folder, seed=0, progress=False)
        if device is not None:
            assert args.device.type == "cpu"  # which is looked up now, and replaced where the trainer looks
            args.__dict__["_setup_devices"] = PartialState._shared_state["device"] = torch.device(device.name)
            device.move(model)
        trainer = kind(model=model, args=args, train_dataset=rows(), eval_dataset=rows(), data_collator=collate)
        trainer.place_model_on_device = False
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    return [parameter.detach() for parameter in model.parameters()]


def build() -> PreTrainedModel:
    settings = {"dropout": 0.0, "attention_dropout": 0.0, "vocab_size": VOCABULARY, "seed": 0}
    return zoo.build("llama-style@tiny", "causal-lm", **settings)


def train_with(given: dict[str, Any]) -> dict[str, str]:
    """Train there and on the CPU; return what went wrong."""
    on_cpu = weights_after(ZooTrainer, build(), None, **given)
    with pretended_device() as device:
        try:
            with device.counted() as waits:
                found = weights_after(ZooTrainer, build(), device, **given)
            # Optimisers make whole steps of a gradient that is rounding. Muon rounds; autocast casts nothing there.
            tolerance = 5e-3 if given.get("bf16") or given.get("optim") == "muon" else 1e-4
            off = max(float((weight.there - same).abs().mean()) for weight, same in zip(found, on_cpu, strict=True))
            assert off < tolerance, f"weights are off by {off} in the mean"
            if "eval_strategy" in given or given.get("optim") == "muon":  # which has a log of its own; is ours
                return {}
            sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2}
            peer = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, **sizes))
            with device.counted() as allowed:
                weights_after(Seq2SeqTrainer, peer, device, **given)
            most = sum(allowed.values()) + AT_THE_END
            assert sum(waits.values()) <= most, f"waits for the device, allowed {most}: {waits}"
        except Exception as error:
            return {"training": f"{type(error).__name__}: {error}"[:600]}
    return {}
