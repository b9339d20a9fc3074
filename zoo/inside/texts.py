"""From texts to what a model reads, with tokens that people can read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from zoo.analysis.inputs import is_causal
from zoo.base.errors import ConfigError, InputError
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import to_ids
from zoo.training.generation.generating import end_somewhere, generation_config

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"  # Replacement character: decoded from bytes that are no complete character


@dataclass(frozen=True)
class Inputs:
    """Examples for a model."""

    arguments: dict[str, Any]  # Keyword arguments of its forward
    masks: dict[str, Tensor]  # True for real tokens, by "encoder" or "decoder". *Shape:* (batch_size, seq_len)
    # The tokens of every example, padding left out, by "encoder" or "decoder"
    tokens: dict[str, tuple[tuple[str, ...], ...]]
    # Next token of each position of the decoder, or of the encoder-decoder's target; -100 without one. *Shape:*
    # (batch_size, seq_len)
    labels: Tensor
    outputs: tuple[str, ...]  # Target of the decoder of an encoder-decoder, as text; otherwise empty


def shown_name(model: str) -> str:
    """A model's name on a page: of a folder its own name, without where it is."""
    return Path(model).resolve().name if os.path.isdir(model) else model


def inputs_of(
    model: PreTrainedModel, tokenizers: Tokenizers, sources: Sequence[str], targets: Sequence[str] | None = None
) -> Inputs:
    """Turn texts into what a model reads; targets are by default what the model writes."""
    if targets is not None and not (model.config.is_encoder_decoder or is_causal(model)):
        raise ConfigError(f"a target was given, but a {type(model).__name__} only reads; leave it out")
    if not sources or len(sources) != len(sources if targets is None else targets):
        more = "" if targets is None else f" and {len(targets)} targets"
        raise InputError(f"{len(sources)} texts{more} were given; give at least one text, and a target for each")
    source = tokenizers.source
    encoded = [encode(source, text, end=not is_causal(model)) for text in sources]
    if is_causal(model) and targets is not None:
        following = to_ids(source, targets, add_special_tokens=False)  # no beginning in the middle
        encoded = [[*ids, *more] for ids, more in zip(encoded, following, strict=True)]
    input_ids, mask = padded(encoded, model.config.pad_token_id, model.device)
    arguments = {"input_ids": input_ids, "attention_mask": mask.long()}
    read = tuple(readable(source, ids) for ids in encoded)
    if not model.config.is_encoder_decoder:
        labels = torch.nn.functional.pad(input_ids.masked_fill(~mask, -100), (0, 1), value=-100)[:, 1:]
        side = "decoder" if is_causal(model) else "encoder"
        return Inputs(arguments, {side: mask}, {side: read}, labels, ("",) * len(sources))
    target = tokenizers.target
    if targets is None:
        written = [greedy(model, target, ids) for ids in encoded]
    else:
        written = [encode(target, text) for text in targets]
    target_ids, target_mask = padded(written, model.config.pad_token_id, model.device)
    labels = target_ids.masked_fill(~target_mask, -100)
    decoder_ids = model.decoder_inputs(input_ids, labels)
    if decoder_ids.shape != labels.shape:  # a variant's own rule: nothing of the target is padding there
        target_mask = torch.ones_like(decoder_ids, dtype=torch.bool)
        labels = torch.full_like(decoder_ids, -100)
    arguments |= {"decoder_input_ids": decoder_ids, "decoder_attention_mask": target_mask.long()}
    shown = tuple(readable(target, ids[kept].tolist()) for ids, kept in zip(decoder_ids, target_mask, strict=True))
    outputs = tuple(target.decode(ids, skip_special_tokens=True).strip() for ids in written)
    return Inputs(
        arguments, {"encoder": mask, "decoder": target_mask}, {"encoder": read, "decoder": shown}, labels, outputs
    )


def encode(tokenizer: PreTrainedTokenizerFast, text: str, *, end: bool = True) -> list[int]:
    ids = list(tokenizer(text)["input_ids"])
    return ids[:-1] if not end and ids and ids[-1] == tokenizer.eos_token_id else ids


def padded(sequences: Sequence[Sequence[int]], pad_token_id: int | None, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ids and mask, (batch_size, seq_len), of sequences that are padded on the right."""
    tensors = [torch.tensor(ids, dtype=torch.long, device=device) for ids in sequences]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad_token_id or 0)
    return ids, pad_sequence([torch.ones_like(one, dtype=torch.bool) for one in tensors], batch_first=True)


@torch.no_grad()
def greedy(model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, source: Sequence[int]) -> list[int]:
    """Let an encoder-decoder write what it finds most probable, token by token."""
    settings = generation_config(model, tokenizer, {"do_sample": False, "num_beams": 1})
    settings.max_new_tokens = settings.max_length = None
    end_somewhere(settings, model, begin=1)
    ids = torch.tensor([source], device=model.device)
    written = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=settings)
    return list(written[0, 1:].tolist())


def readable(tokenizer: PreTrainedTokenizerFast, ids: Sequence[int]) -> tuple[str, ...]:
    """Write tokens as people read them."""
    decoded = [tokenizer.decode([one]).strip() for one in ids]
    names = tokenizer.convert_ids_to_tokens(list(ids))
    return tuple(text if text and REPLACEMENT not in text else name for text, name in zip(decoded, names, strict=True))
