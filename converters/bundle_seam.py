"""Replacements of the library's registries and fast paths in a bundle.

A definition here replaces the library's of the same name. None of it is a fast path: attention is transformers',
dropout and norms are PyTorch's, a loss is computed with its logits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from enum import Enum
from types import SimpleNamespace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from zoo.base.errors import ConfigError, InputError
from zoo.fast.attention import flash_window, refuse_what_is_ignored
from zoo.fast.attention_backends import eager_attention
from zoo.fast.chunked_loss import mean_loss, summed_loss
from zoo.fast.generation import Generation
from zoo.models.context import packed_documents, packed_into_cache
from zoo.models.fields import Fields

T = TypeVar("T")


class InvalidChoiceError(ConfigError):
    """A setting's value is not among its choices."""

    @classmethod
    def check(cls, given: object, *, valid: Collection[str], kind: str) -> None:
        if given not in valid:
            raise cls(f"unknown {kind} {str(given)!r}; valid: {', '.join(valid)}")


class Format:
    """The version of a format: files of another version are refused."""

    def __init__(self, name: str, place: str, version: int = 1, key: str = "format", **options: Any) -> None:
        self.name, self.place, self.version, self.key = name, place, version, key

    @property
    def stamp(self) -> dict[str, int]:
        """The version as an entry of a file."""
        return {self.key: self.version}

    def check(self, content: Any, where: object, written_by: object = None) -> None:
        """Refuse a version that is not read here."""
        if (found := content.get(self.key, self.version)) != self.version:
            raise ConfigError(f"{where} is {self.name} of format {found!r}, and these files read {self.version}")


class Registry(dict[str, T]):
    """The parts of one kind that these files hold, by name; the modelling file fills it."""

    def __init__(self, kind: str, **options: Any) -> None:
        super().__init__()
        self.kind = kind

    def get(self, name: str, **options: Any) -> T:  # type: ignore[override]
        """Look a part up."""
        if not self:
            from zoo.models.pretrained import BODIES  # noqa: F401
        if name not in self:
            raise ConfigError(
                f"these files have no {self.kind} {name!r}, only {', '.join(self)}; "
                "`pip install transformer-zoo` brings all"
            )
        return self[name]

    def entry(self, name: str) -> SimpleNamespace:
        """A part's one name, and where it comes from: these files."""
        return SimpleNamespace(name=name, origin=SimpleNamespace(built_in=True))


@dataclasses.dataclass(frozen=True)
class Variant:
    """A variant: the function that returns its blueprint."""

    builder: Callable[[Any], Any]
    check_quirks = staticmethod(tuple)  # they were checked when these files were written


VARIANTS: Registry[Variant] = Registry("variant")


def validate_inherited(config: Any, kwargs: dict[str, Any]) -> None:
    """Checks of what every configuration of transformers has: transformers' own."""


def validate_rope_parameters(rope_parameters: Any, layer_types: tuple[str, ...] = ()) -> None:
    """Checks of rotary settings: transformers' own."""


validate_rope_tables = validate_rope_parameters  # tables were made when the bundle was


def with_given(saved: dict[str, Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Replace saved settings by the fields among the arguments of `from_pretrained`."""
    return {**saved, **{name: kwargs.pop(name) for name in Fields.__annotations__.keys() & kwargs.keys()}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Setting:
    """Range, choices and filling rule of one setting."""

    least: float | None = None
    greatest: float = float.fromhex("0x1.fffffep+127")
    positive: bool = False
    choices: type[Enum] | None = None
    usual: str | Callable[[Any], Any] | None = None
    decoder_of: str | None = None

    def usual_value(self, config: Any) -> Any:
        """Value that follows from other settings, None where none does."""
        rule = self.usual or self.decoder_of
        return rule(config) if callable(rule) else rule and getattr(config, rule, None)


def setting(default: Any, *shared: Any, **facts: Any) -> Any:
    """Declare a field by its own facts and shared sets of them."""
    known = {name: value for some in (*shared, facts) for name, value in some.items()}
    return dataclasses.field(default=default, metadata={"setting": Setting(**known)})


Dropout = nn.Dropout
Identity = nn.Identity
QuickLayerNorm = nn.LayerNorm
dropout = F.dropout


def attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Any,
    *,
    attn_implementation: str,
    dropout: float,
    interface: Callable[..., Any] | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Mix values by the backend of a call, a function of transformers' attention interface."""
    backend = interface or ALL_ATTENTION_FUNCTIONS.get_interface(attn_implementation, eager_attention)
    refuse_what_is_ignored(attn_implementation, dropout, position_bias, attention_mask)
    window = kwargs.get("sliding_window", module.sliding_window)
    kwargs |= {"dropout": dropout, "position_bias": position_bias, "sliding_window": flash_window(module, window)}
    mixed, weights = backend(module, query, key, value, attention_mask, **kwargs)
    if mixed.ndim != 4:  # backends of serving engines merge the heads
        mixed = mixed.reshape(query.shape[0], query.shape[2], query.shape[1], -1)
    return mixed, weights


def packed_rows(config: Any, context: Any) -> None:
    """Refuse documents packed into several rows on FlashAttention, where transformers separates those of one row."""
    rows, backend = context.given_positions, config._attn_implementation
    if config.is_decoder and len(rows) > 1 and "flash" in backend and packed_documents(rows) is not None:
        raise InputError(
            f"position_ids pack documents into {len(rows)} rows, which {backend} does not separate: give one row, or "
            "attn_implementation='sdpa'"
        )


@dataclasses.dataclass(frozen=True)
class UnpaddedMask:
    """Where documents are that are packed into rows."""

    documents: Tensor  # Index of every position's document in its row. *Shape:* (batch_size, seq_len)


def separate_documents(hidden_states: Tensor, position_ids: Tensor | None, past_key_values: Any) -> UnpaddedMask | None:
    """The documents that are packed into rows, None if every row holds one."""
    looks = hidden_states.shape[1] > 1 and (past_key_values is None or hidden_states.device.type == "cpu")
    documents = packed_documents(position_ids) if looks else None
    if documents is None:
        return None
    if past_key_values is not None:
        raise packed_into_cache()
    return UnpaddedMask(documents.expand(len(hidden_states), -1))


def mix_documents(mix: Callable[..., Tensor], hidden_states: Tensor, documents: UnpaddedMask) -> Tensor:
    """Mix the tokens of every packed document separately."""
    rows = []
    for states, of_row in zip(hidden_states, documents.documents, strict=True):
        lengths = of_row.unique_consecutive(return_counts=True)[1].tolist()
        rows.append(torch.cat([mix(one[None], None, None)[0] for one in states.split(lengths)]))
    return torch.stack(rows)


def mask_to_last_label(stack: Any, labels: Tensor) -> None:
    """The mask of a target's padding: none, padding stays in."""


def cross_entropy(
    head: Any,
    hidden_states: Tensor,
    labels: Tensor,
    skip_logits: bool,
    label_smoothing: float,
    *,
    z_loss: float = 0.0,
    num_items_in_batch: Tensor | int | None = None,
    **kwargs: Any,
) -> tuple[Tensor | None, Tensor]:
    """Mean cross entropy per token, with the logits unless they are skipped."""
    targets, logits = head.targets(labels, **kwargs), head.project(hidden_states)
    loss = mean_loss(summed_loss(logits, targets, label_smoothing, z_loss), targets, num_items_in_batch)
    return None if skip_logits else logits, loss


class CachedGenerationMixin(Generation):
    """transformers' generation, with its own caches."""


class Mixer(nn.Module):
    """Base class of layers without attention; this model has none."""
