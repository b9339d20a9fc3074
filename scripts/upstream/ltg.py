"""LTG-BERT and GPT-BERT against their authors' code, with random weights: logits, and the weights back.

git clone https://github.com/ltgoslo/ltg-bert && git clone https://github.com/ltgoslo/gpt-bert
python scripts/upstream/ltg.py ltg-bert gpt-bert
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor

import zoo
from zoo.converters import convert_back

FILES = {"ltg-bert": ("training/model.py", "babylm/train/model.py"), "gpt-bert": ("pretraining/model_extra.py",)}
SIZES: dict[str, Any] = {
    "attention_probs_dropout_prob": 0.0,
    "hidden_dropout_prob": 0.0,
    "hidden_size": 48,
    "intermediate_size": 64,
    "max_position_embeddings": 128,
    "position_bucket_size": 32,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "vocab_size": 96,
    "layer_norm_eps": 1e-5,
}
BATCH, LENGTH = 3, 100


def load_module(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("authors", file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def random_model(module: Any, dtype: torch.dtype) -> Any:
    """The authors' model with weights that leave out nothing: norms, biases and mixtures too."""
    torch.manual_seed(0)
    model = module.Bert(SimpleNamespace(**SIZES)).to(dtype).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def their_logits(model: Any, ids: Tensor, hidden: Tensor) -> Tensor:
    """Logits of all positions. *Shape:* (batch_size, seq_len, vocab_size)."""
    with default_dtype(next(model.parameters()).dtype):  # the type of its accumulator
        states = model.get_contextualized(ids.T, hidden)
    states = states[-1] if isinstance(states, list) else states
    found: Tensor = model.classifier.nonlinearity(states).transpose(0, 1)
    return found


def compare(name: str, file: Path, dtype: torch.dtype) -> None:
    """Print the largest differences of one file's model."""
    theirs = random_model(load_module(file), dtype)
    settings: dict[str, Any] = {"relative_attention_max_distance": SIZES["max_position_embeddings"]}
    if file.parent.parent.name == "babylm":
        settings["quirks"] = ()
    ours: Any = zoo.convert(theirs, name, **settings)
    ids = torch.randint(SIZES["vocab_size"], (BATCH, LENGTH))
    real = torch.arange(LENGTH) < torch.tensor([LENGTH, LENGTH // 2, 7])[:, None]
    square = ~real[:, None, :].expand(-1, LENGTH, -1)
    hidden = ~real if name == "ltg-bert" else square
    print(f"{name}, {file}, {str(dtype)[6:]}")
    masked = ours(ids, attention_mask=real.long()).logits
    print(f"  masked: {(masked - their_logits(theirs, ids, hidden))[real].abs().max():.1e}")
    if name == "gpt-bert":
        later = square | ~torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
        rows = torch.ones(BATCH, dtype=torch.bool)
        causal = ours(ids, attention_mask=real.long(), causal_rows=rows).logits
        print(f"  causal: {(causal - their_logits(theirs, ids, later))[real].abs().max():.1e}")
    back, state = convert_back(ours), theirs.state_dict()
    lacking = {key for key in state.keys() - back.keys() if not key.endswith("position_indices")}
    equal = not lacking and all(torch.equal(back[key], state[key]) for key in back)
    print(f"  weights back: {'equal, bit for bit' if equal else 'different'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ltg_bert", type=Path, help="A checkout of ltgoslo/ltg-bert.")
    parser.add_argument("gpt_bert", type=Path, help="A checkout of ltgoslo/gpt-bert.")
    given = parser.parse_args()
    for name, folder in (("ltg-bert", given.ltg_bert), ("gpt-bert", given.gpt_bert)):
        for file in FILES[name]:
            for dtype in (torch.float64, torch.float32):
                compare(name, folder / file, dtype)


if __name__ == "__main__":
    main()
