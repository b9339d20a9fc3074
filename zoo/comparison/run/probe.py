"""A model's answers to a few examples, to be asked again after it has been saved and loaded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.base.files import read_json, write_json
from zoo.fast.switches import without_trials
from zoo.training.predicting import can_generate

from ..files import ANSWERS, QUESTIONS

MOST_EXAMPLES = 8
LONGEST_TEXT = 32  # Tokens that are read or written


@dataclass(frozen=True)
class Probe:
    """Questions to a model."""

    modules: Sequence[str]
    sources: Sequence[str]
    references: Sequence[str] = ()  # Targets for the logits of an encoder-decoder; without any, the sources are
    task: str = "seq2seq-lm"
    fast_paths: Mapping[str, str] = field(default_factory=dict)  # Modes that it is asked with

    @torch.no_grad()
    @without_trials()
    def ask(
        self, model: PreTrainedModel, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
    ) -> dict[str, Tensor]:
        """`logits`, (batch_size, ..., num_ids), and as `outputs` the ids that a model writes greedily, or the best."""
        limit = min(LONGEST_TEXT, model.config.max_position_embeddings or LONGEST_TEXT)
        reading: Any = dict(padding=True, truncation=True, max_length=limit, return_tensors="pt", padding_side="right")
        read: dict[str, Any] = dict(source(list(self.sources), **reading).to(model.device))
        model.eval()
        if not model.config.is_encoder_decoder:
            logits = model(**read).logits
            outputs = logits.argmax(dim=-1)
        else:
            wanted = target(list(self.references or self.sources), **reading).to(model.device)
            labels = wanted["input_ids"].masked_fill(wanted["attention_mask"] == 0, -100)
            logits = model(**read, labels=labels).logits
            options = {"do_sample": False, "num_beams": 1, "max_length": limit}
            outputs = model.generate(**read, **options) if can_generate(model) else logits.argmax(dim=-1)
        return {"logits": logits.float().cpu().contiguous(), "outputs": outputs.cpu().contiguous()}

    def write(self, folder: Path, answers: dict[str, Tensor]) -> None:
        write_json(folder / QUESTIONS, asdict(self))
        save_file(answers, folder / ANSWERS)


def read_probe(folder: Path) -> tuple[Probe, dict[str, Tensor]]:
    return Probe(**read_json(folder / QUESTIONS)), load_file(folder / ANSWERS)
