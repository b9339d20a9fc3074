"""State_dicts as plain dicts: random ones, parts of one, and the gradients of one."""

import re

import torch
from torch import Tensor

StateDict = dict[str, Tensor]


def part(state_dict: StateDict, name: str) -> StateDict:
    """The entries below `name`, with `name.` cut off their keys; the tensors are the same objects."""
    prefix = f"{name}."
    return {key[len(prefix) :]: value for key, value in state_dict.items() if key.startswith(prefix)}


def parts(state_dict: StateDict, prefix: str) -> list[StateDict]:
    """The parts named `prefix` and a number ("blocks.0", "blocks.1", ... for "blocks."), in the numbers' order."""
    numbers = {int(match[1]) for key in state_dict if (match := re.match(rf"{re.escape(prefix)}(\d+)\.", key))}
    return [part(state_dict, f"{prefix}{number}") for number in sorted(numbers)]


class RandomStateDict:
    """Builds a state_dict entry by entry, every tensor random: also norms and biases, so that a lost one shows.

    Values are drawn in float64 and then rounded to `dtype`, so that equal seeds give the same model in every dtype.
    """

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self.tensors: StateDict = {}
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> Tensor:
        """Independent normal values, already in `dtype`. *Shape:* shape."""
        drawn = torch.randn(shape, generator=self.generator, dtype=torch.float64)
        return (mean + std * drawn).to(self.dtype)

    def embedding(self, name: str, rows: int, width: int) -> None:
        """Add `name`.weight. *Shape:* (rows, width)."""
        self.tensors[f"{name}.weight"] = self.normal(rows, width)

    def linear(self, name: str, outputs: int, inputs: int) -> None:
        """Add `name`.weight. *Shape:* (outputs, inputs)."""
        self.tensors[f"{name}.weight"] = self.normal(outputs, inputs, std=inputs**-0.5)

    def affine(self, name: str, outputs: int, inputs: int) -> None:
        """Add `name`.weight and `name`.bias. *Shape:* (outputs, inputs) and (outputs,)."""
        self.linear(name, outputs, inputs)
        self.tensors[f"{name}.bias"] = self.normal(outputs, std=0.5)

    def norm(self, name: str, *shape: int) -> None:
        """Add `name`.weight around one and `name`.bias around zero. *Shape:* shape each."""
        self.tensors[f"{name}.weight"] = self.normal(*shape, mean=1.0, std=0.3)
        self.tensors[f"{name}.bias"] = self.normal(*shape, std=0.3)

    def alias(self, name: str, of: str) -> None:
        """Add every entry below `of` below `name` too, as the same tensor objects."""
        self.tensors.update({f"{name}.{key}": value for key, value in part(self.tensors, of).items()})


def trainable(state_dict: StateDict) -> StateDict:
    """Copies that require gradients; keys that shared a tensor share the copy."""
    copies = {id(value): value.detach().clone().requires_grad_() for value in state_dict.values()}
    return {key: copies[id(value)] for key, value in state_dict.items()}


def gradients(outputs: Tensor, state_dict: StateDict) -> dict[str, Tensor | None]:
    """Gradients of `probe` with respect to every entry, shared ones under each key; None for those without any."""
    found = torch.autograd.grad(probe(outputs), list(state_dict.values()), allow_unused=True)
    return dict(zip(state_dict, found, strict=True))


def probe(outputs: Tensor) -> Tensor:
    """A random linear function of `outputs`, which depends on their shape only. *Shape:* any -> ()."""
    drawn = torch.randn(outputs.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return (outputs * drawn.to(outputs)).sum()


def random_lengths(batch_size: int, longest: int, generator: torch.Generator) -> list[int]:
    """Lengths of a padded batch: the first row is full, the last as short as can be, those between are random."""
    drawn = torch.randint(1, longest + 1, (batch_size,), generator=generator).tolist()
    return [longest, *drawn[1:-1], 1][:batch_size]


def padded_ids(
    batch_size: int, length: int, vocab_size: int, pad_idx: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Random ids, (batch_size, length), with `pad_idx` at the ends of rows only, and their lengths, (batch_size,)."""
    lengths = torch.tensor(random_lengths(batch_size, length, generator))
    ids = torch.randint(vocab_size - 1, (batch_size, length), generator=generator)
    ids = ids + (ids >= pad_idx)
    return ids.masked_fill(torch.arange(length) >= lengths[:, None], pad_idx), lengths
