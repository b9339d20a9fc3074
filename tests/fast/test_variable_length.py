"""PyTorch's variable-length attention, written out: padding is taken out on GPUs as well, and nothing changes by it."""

from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.fast import unpadding as variable_length
from zoo.fast.switches import fast_paths
from zoo.testing.backends import attend_by_sequence
from zoo.testing.fast_paths import rows_of_layers
from zoo.testing.subjects import randomize

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "vocab_size": 60}
RUNS = [
    ("bert-style", "masked-lm"),
    ("bert-style", "sequence-classification"),
    ("llama-style:num_key_value_heads=2", "causal-lm"),
    ("pre-norm:position=rotary,sliding_window=3", "masked-lm"),
    ("pre-norm:position=rotary,sliding_window=3", "causal-lm"),
    ("modernbert-style:residual=plain,share_layers=true,sliding_window=3", "masked-lm"),
    ("vanilla", "seq2seq-lm"),
]


@pytest.fixture(autouse=True)
def written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has this CPU for a GPU with a kernel that computes in float64 alone."""
    variable_length.has_kernel.cache_clear()
    monkeypatch.setattr(variable_length, "HALF", (torch.float64,))
    monkeypatch.setattr(variable_length, "has_kernel", lambda device: True)
    monkeypatch.setattr("zoo.fast.attention.has_kernel", lambda device: True)
    monkeypatch.setattr(variable_length, "kernel", lambda: attend_in_one_call)


def attend_in_one_call(*states: Any, scale: float, window_size: tuple[int, int], enable_gqa: bool) -> Tensor:
    heads = [one.shape[1] for one in states[:2]]
    assert enable_gqa == (heads[0] != heads[1]), "the kernel would refuse fewer heads of keys"
    return attend_by_sequence(*states, softmax_scale=scale, window_size=window_size)


def padded(name: str, task: str, **settings: Any) -> tuple[Any, dict[str, Tensor]]:
    """A model, and a batch padded at the end of its sequences."""
    model = zoo.build(name, task, seed=0, **{"dropout": 0.0, "attention_dropout": 0.0, **SIZES, **settings})
    randomize(model)
    ids = torch.randint(5, 60, (3, 9), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(9) < torch.tensor([[9], [3], [6]])).long()
    labels = ids[:, 0] % 2 if task == "sequence-classification" else ids.masked_fill(mask == 0, -100)
    return model.double(), {"input_ids": ids, "attention_mask": mask, "labels": labels}


def losses(model: Any, inputs: dict[str, Tensor], mode: str) -> tuple[list[Tensor], set[int]]:
    """The loss and all gradients, and the batch sizes that layers saw."""
    with fast_paths(unpadding=mode), rows_of_layers() as rows:
        loss = model(**inputs).loss
    return [loss, *torch.autograd.grad(loss, list(model.parameters()))], rows


@pytest.mark.parametrize(("name", "task"), RUNS)
def test_padding_is_taken_out_and_changes_nothing(name: str, task: str) -> None:
    model, inputs = padded(name, task)
    expected, _ = losses(model, inputs, "never")
    found, rows = losses(model, inputs, "auto")
    assert rows == {1}
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("gpt2-style", {"attention_dropout": 0.1}),
        ("alibi-decoder", {}),
        ("gpt2-style", {"hidden_size": 16}),
        ("gpt2-style", {"attn_implementation": "eager"}),
    ],
    ids=["dropped weights", "biases", "narrow heads", "another backend"],
)
def test_padding_stays_where_the_kernel_cannot_do_what_is_asked(name: str, settings: dict[str, Any]) -> None:
    model, inputs = padded(name, "causal-lm", **settings)
    assert losses(model.train(), inputs, "auto")[1] == {3}


def test_padding_stays_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(variable_length, "HALF", (torch.bfloat16,))
    model, inputs = padded("gpt2-style", "causal-lm")
    assert losses(model, inputs, "auto")[1] == {3}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert losses(model.float(), inputs, "auto")[1] == {1}


def test_a_window_that_is_off_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.fast.attention.flash_window", lambda module, window: window)
    model, inputs = padded("pre-norm:position=rotary,sliding_window=3", "masked-lm")
    off = losses(model, inputs, "auto")[0][0] - losses(model, inputs, "never")[0][0]
    assert off.abs() > 1e-4


def test_a_cpu_has_no_such_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert not variable_length.has_kernel(torch.device("cpu"))
