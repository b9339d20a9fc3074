"""Loading weights, and training on the bytes of a text."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from .config import Config, Model
from .initialization import normalize


def load(folder: str) -> Model:
    """Load weights saved by the zoo, which have tied weights once."""
    model = Model(Config())
    weights = {name: one for file in Path(folder).glob("*.safetensors") for name, one in load_file(file).items()}
    assert weights.keys() == dict(model.named_parameters()).keys()
    model.load_state_dict(weights, strict=False)
    return model


def train(model: Model, text: Tensor, steps: int = 100) -> None:
    """Train on pieces of a text."""
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-3)
    for step in range(1, steps + 1):
        ids = torch.stack([text[i : i + 64] for i in torch.randint(len(text) - 64, (16,))])
        if model.config.task == "causal-lm":
            loss = model(ids, labels=ids)[1]
        elif model.config.task == "seq2seq-lm":
            # The target is the reversed text.
            loss = model(ids, labels=ids.flip(1))[1]
        elif model.config.task == "masked-lm":
            hidden = torch.rand(ids.shape) < 0.15
            loss = model(ids.masked_fill(hidden, 0), labels=ids.masked_fill(~hidden, -100))[1]
        elif model.config.task == "sequence-classification":
            # The label is the first byte.
            loss = model(ids, labels=ids[:, 0] % model.config.num_labels)[1]
        else:
            loss = model(ids, labels=ids % model.config.num_labels)[1]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if model.config.unit_weights:
            normalize(model)
        print(f"step {step}: loss {loss.item():.3f}")


def main() -> None:
    given = dict(zip(sys.argv[1::2], sys.argv[2::2], strict=True)) if "--train" in sys.argv[1:-1] else sys.exit(__doc__)
    model = load(given["--load"]) if "--load" in given else Model(Config())
    train(model, torch.tensor(list(Path(given["--train"]).read_bytes())) % model.config.vocab_size)
    if "--save" in given:
        save_file(dict(model.named_parameters()), given["--save"])
