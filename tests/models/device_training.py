"""The trainer's options, one run each on the pretended device and on the CPU, and how often each waits."""

import tempfile
from typing import Any

import torch
from accelerate.state import AcceleratorState, PartialState
from every_variant import ONE_TASK
from models.device_peers import PEERS, VOCABULARY
from torch import Tensor
from transformers import PreTrainedModel, PrinterCallback, Seq2SeqTrainer

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
    "several": {
        "gradient_checkpointing": True,
        "gradient_accumulation_steps": 2,
        "label_smoothing_factor": 0.1,
        "train_sampling_strategy": "group_by_length",
    },
}

AT_A_LOG = 2
"""Synchronizations of the zoo's trainer in addition to those of transformers': tokens, and whether a loss is finite."""

STEPS = 3


class Rows(list[dict[str, Tensor]]):
    """A few sequences, and how long they are."""

    lengths = (7,) * 8


def rows(*, has_target: bool) -> Rows:
    ids = torch.randint(3, VOCABULARY, (8, 7), generator=torch.Generator().manual_seed(0))
    found = Rows({"input_ids": row, "attention_mask": torch.ones_like(row), "labels": row} for row in ids)
    for row in found if has_target else ():
        row["decoder_input_ids"] = row["labels"].roll(1)  # which transformers' collator makes, for smoothed labels
    return found


def collate(batch: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in batch]) for name in batch[0]}


def weights_after(kind: Any, model: PreTrainedModel, device: PretendedDevice | None, **given: Any) -> list[Any]:
    """Train for three steps, and return the weights as they are then, but for those without an effect."""
    AcceleratorState._reset_state(True)
    plain = {"use_cpu": True, "max_steps": STEPS, "per_device_train_batch_size": 2, "logging_steps": 50}
    with tempfile.TemporaryDirectory() as folder:
        args = training_arguments({**plain, "learning_rate": 0.01, **given}, output_dir=folder, seed=0, progress=False)
        if device is not None:
            assert args.device.type == "cpu"  # which is looked up now, and replaced where the trainer looks
            args.__dict__["_setup_devices"] = PartialState._shared_state["device"] = torch.device(device.name)
            device.move(model)
        data = rows(has_target=model.config.is_encoder_decoder)
        trainer = kind(model=model, args=args, train_dataset=data, eval_dataset=data, data_collator=collate)
        trainer.place_model_on_device = False
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    # Adam makes whole steps of such a bias's gradient, which is rounding.
    return [weight.detach() for name, weight in model.named_parameters() if not name.endswith("k_proj.bias")]


def train_with(option: str) -> dict[str, str]:
    """Train there and on the CPU by KEY/VARIANT, the key of `OPTIONS`; return what went wrong."""
    option, _, name = option.partition("/")
    given, task = OPTIONS[option], ONE_TASK[name]

    def build() -> PreTrainedModel:
        return zoo.build(f"{name}@tiny", task, dropout=0.0, attention_dropout=0.0, vocab_size=VOCABULARY, seed=0)

    on_cpu = weights_after(ZooTrainer, build(), None, **given)
    with pretended_device() as device:
        with device.counted() as waits:
            found = weights_after(ZooTrainer, build(), device, **given)
        # Muon rounds; autocast casts nothing there.
        tolerance = 5e-3 if given.get("bf16") or given.get("optim") == "muon" else 1e-4
        off = max(float((weight.there - same).abs().mean()) for weight, same in zip(found, on_cpu, strict=True))
        wrong = {"weights": f"are off by {off} in the mean"} if off > tolerance else {}
        if given.get("optim") == "muon":  # which is ours
            return wrong
        with device.counted() as allowed:
            weights_after(Seq2SeqTrainer, PEERS[task](), device, **given)
    evaluations = STEPS if "eval_strategy" in given else 0
    most = sum(allowed.values()) + AT_A_LOG * (1 + evaluations) + evaluations  # their loss is a sum, read once
    return wrong if sum(waits.values()) <= most else {**wrong, "waits": f"allowed are {most}: {waits}"}
