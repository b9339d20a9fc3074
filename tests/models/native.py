"""Transformers' own models and ours with the same weights, carried over by hand, independently of the converters."""

import re
from typing import Any

import torch
import transformers
from torch import Tensor

import zoo
from zoo.testing import randomize

HEADS = 4
SIZES: dict[str, int] = {
    "vocab_size": 37,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
}
LENGTH = 9
EXACT = 1e-10
THROUGH_FLOAT32 = 2e-5

State = dict[str, Tensor]
Table = list[tuple[str, str]]


def renamed(state: State, table: Table) -> State:
    """Rename every tensor by the one row that matches its name; an empty new name drops it."""
    translated: State = {}
    for name, tensor in state.items():
        rows = [(pattern, new) for pattern, new in table if re.fullmatch(pattern, name)]
        assert len(rows) == 1, f"{name} is matched by {len(rows)} rows"
        pattern, new = rows[0]
        if new:
            translated[re.sub(pattern, new, name)] = tensor
    return translated


def native_of(class_name: str, config_name: str, **settings: Any) -> Any:
    config = getattr(transformers, config_name)(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    native = getattr(transformers, class_name)(config).double().eval()
    fixed = {
        name: tensor.clone() for name, tensor in native.state_dict().items() if "Sinusoidal" in owner(native, name)
    }
    randomize(native).load_state_dict(fixed, strict=False)
    return native


def owner(model: torch.nn.Module, name: str) -> str:
    """The class name of the module that holds a tensor."""
    return type(model.get_submodule(name.rpartition(".")[0])).__name__


def zoo_of(name: str, state: State, **settings: Any) -> Any:
    model = zoo.build(name, dtype=torch.float64, attn_implementation="eager", **{"sizes": "fixed", **SIZES, **settings})
    model.load_state_dict(state)
    return model


def ids(seed: int = 0, length: int = LENGTH) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(3, SIZES["vocab_size"], (2, length), generator=generator)


MASK = torch.tensor([[1] * LENGTH, [1] * (LENGTH - 3) + [0] * 3])


@torch.no_grad()
def assert_same_logits(native: Any, ours: Any, tolerance: float, **inputs: Tensor) -> None:
    """Compare the logits of real tokens, on a padded batch, and the number of parameters."""
    inputs = {"input_ids": ids(), "attention_mask": MASK, **inputs}
    expected, got = native(**inputs).logits, ours(**inputs).logits
    assert expected.std() > 0.05, "the oracle's logits are too small to tell anything"
    real = MASK.bool() if expected.shape[1] == LENGTH else torch.ones(expected.shape[:2], dtype=torch.bool)
    torch.testing.assert_close(got[real], expected[real], atol=tolerance, rtol=tolerance)
