"""A model's answers to a few examples, to be asked again after it has been saved and loaded."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from .files import ANSWERS, QUESTIONS, write_json

MOST_EXAMPLES = 8
LONGEST_OUTPUT = 32


@dataclass(frozen=True)
class Probe:
    """Questions to a translation model.

    Attributes:
        modules: What to import before the model can be loaded.
        sources: What to read, and translate.
        references: What to compute logits of.
    """

    modules: tuple[str, ...]
    sources: tuple[str, ...]
    references: tuple[str, ...]

    @torch.no_grad()
    def ask(
        self, model: PreTrainedModel, source: PreTrainedTokenizerFast, target: PreTrainedTokenizerFast
    ) -> dict[str, torch.Tensor]:
        """Ask a model.

        Args:
            model: An encoder-decoder.
            source: What it reads with.
            target: What it writes with.

        Returns:
            `logits`, *Shape:* (batch_size, target_len, vocab_size), and the ids of greedy `outputs`,
            *Shape:* (batch_size, output_len).
        """
        read: dict[str, Any] = dict(source(list(self.sources), padding=True, return_tensors="pt").to(model.device))
        wanted = target(list(self.references), padding=True, return_tensors="pt").to(model.device)
        labels = wanted["input_ids"].masked_fill(wanted["attention_mask"] == 0, -100)
        model.eval()
        logits = model(**read, labels=labels).logits
        outputs = model.generate(**read, do_sample=False, num_beams=1, max_length=LONGEST_OUTPUT)
        return {"logits": logits.float().cpu().contiguous(), "outputs": outputs.cpu().contiguous()}

    def write(self, folder: Path, answers: dict[str, torch.Tensor]) -> None:
        """Write the questions and the answers to them.

        Args:
            folder: Where to.
            answers: What `ask` returned.
        """
        write_json(folder / QUESTIONS, asdict(self))
        save_file(answers, folder / ANSWERS)


def read_probe(folder: Path) -> tuple[Probe, dict[str, torch.Tensor]]:
    """Read what `Probe.write` wrote.

    Args:
        folder: Where it is.

    Returns:
        The questions and the answers to them.
    """
    written = json.loads((folder / QUESTIONS).read_text(encoding="utf-8"))
    return Probe(**{name: tuple(texts) for name, texts in written.items()}), load_file(folder / ANSWERS)
