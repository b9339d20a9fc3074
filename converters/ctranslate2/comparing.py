"""What a model and its export in CTranslate2 compute for the same inputs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from zoo.models import ZooConfig, ZooPreTrainedModel

from ..errors import VerificationError, require
from ..verification import Difference, draw_tokens, ends_of, explained, in_dtype, neutral_generation
from .running import CTranslate2Model

INPUTS = 100
"""How many random inputs greedy and beam search are compared on."""

BEAMS = 4
NEW_TOKENS = 8


@dataclass(frozen=True)
class Sample:
    """Random inputs."""

    prompts: list[list[int]]
    targets: list[list[int]]


def draw(config: ZooConfig, seed: int = 0) -> Sample:
    """Draw random inputs of different lengths."""
    generator = torch.Generator().manual_seed(seed)
    longest = min(9, config.max_position_embeddings - NEW_TOKENS - 1)
    special = {config.pad_token_id, config.bos_token_id, config.decoder_start_token_id, *ends_of(config)}

    def ids(size: int) -> list[int]:
        return draw_tokens(int(torch.randint(1, longest + 1, (), generator=generator)), size, special, generator)

    prompts = [ids(config.vocab_size) for _ in range(INPUTS)]
    targets = [ids(config.decoder_vocab_size) for _ in range(INPUTS)] if config.stack == "encoder-decoder" else []
    return Sample(prompts, targets)


def check_ctranslate2(model: ZooPreTrainedModel, folder: Path, dtype: str = "float32", seed: int = 0) -> Difference:
    """Load an export, and compare probabilities and outputs with the original's."""
    require("ctranslate2", "ctranslate2")
    engine = CTranslate2Model.open(folder)
    reference = in_dtype(model, torch.float32)
    sample = draw(model.config, seed)
    ours, theirs = outputs(reference, sample), outputs_there(engine, sample)
    difference = largest(ours, theirs)
    scale = max(1.0, *(float(tensor.abs().max()) for tensor in ours))

    def noise() -> float:
        return largest(ours, [tensor.float() for tensor in outputs(in_dtype(model, torch.float64), sample)])

    exact = dtype == "float32"
    allowed = explained(difference, scale, noise) if exact else sys.float_info.max
    if not difference <= allowed:
        raise VerificationError(f"in CTranslate2 it differs by {difference:.2g} in {dtype} (allowed {allowed:.2g})")
    if not model.can_generate():
        return Difference(difference, None, scale, len(ours), None)
    same = {beams: decoded(reference, engine, sample, beams) for beams in (1, BEAMS)}
    for beams, share in same.items():
        if exact and share < 1.0:
            how = "greedily" if beams == 1 else f"with {beams} beams"
            raise VerificationError(
                f"CTranslate2 decodes other tokens {how} in {round((1 - share) * INPUTS)} of {INPUTS} inputs"
            )
    return Difference(difference, None, scale, len(ours), same[1] == 1.0, same[BEAMS] == 1.0)


def largest(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Largest difference of outputs."""
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))


def padded(rows: list[list[int]], pad: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Ids and mask, (batch_size, seq_len), of lists that are padded on one side."""
    ids = [torch.tensor(row) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    return (
        pad_sequence(ids, batch_first=True, padding_value=pad, padding_side=side),
        pad_sequence(masks, batch_first=True, padding_side=side),
    )


@torch.no_grad()
def outputs(model: ZooPreTrainedModel, sample: Sample) -> list[Tensor]:
    """Outputs of the model.

    Returns:
        Log-probabilities (of the target's tokens for an encoder-decoder, of all tokens for a decoder), or hidden
        states, an input.
    """
    config = model.config
    ids, mask = padded(sample.prompts, config.pad_token_id or 0)
    lengths = mask.sum(1).tolist()
    if config.stack == "encoder":
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return [row[:length] for row, length in zip(hidden, lengths, strict=True)]
    if config.stack == "decoder":
        found = model(input_ids=ids, attention_mask=mask, use_cache=False).logits.log_softmax(-1)
        return [row[:length] for row, length in zip(found, lengths, strict=True)]
    end, start = ends_of(config)[0], int(config.decoder_start_token_id or 0)
    given, kept = padded([[start, *target] for target in sample.targets], config.pad_token_id or 0)
    said, _ = padded([[*target, end] for target in sample.targets], 0)
    logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=given, use_cache=False).logits
    chosen = logits.log_softmax(-1).gather(2, said[..., None])[..., 0]
    return [row[:length] for row, length in zip(chosen, kept.sum(1).tolist(), strict=True)]


def outputs_there(engine: CTranslate2Model, sample: Sample) -> list[Tensor]:
    """Outputs of the export. Arguments and result as for [`outputs`][]."""
    source, target = engine.vocabularies.source, engine.vocabularies.target
    prompts = [[source[number] for number in row] for row in sample.prompts]
    if engine.config.stack == "encoder-decoder":
        said = [[target[number] for number in row] for row in sample.targets]
        return [torch.tensor(result.log_probs) for result in engine.engine.score_batch(prompts, said)]
    if engine.config.stack == "encoder":
        ids, mask = padded(sample.prompts, engine.config.pad_token_id or 0)
        rows = engine(input_ids=ids, attention_mask=mask).last_hidden_state
    else:
        rows = torch.as_tensor(np.array(engine.engine.forward_batch(prompts, return_log_probs=True))).float()
    return [row[: len(prompt)] for row, prompt in zip(rows, prompts, strict=True)]


def decoded(model: ZooPreTrainedModel, engine: CTranslate2Model, sample: Sample, beams: int) -> float:
    """How often both decode the same tokens, by plain search."""
    config = model.config
    side = "left" if config.stack == "decoder" else "right"
    ids, mask = padded(sample.prompts, config.pad_token_id or 0, side)
    neutral = GenerationConfig(**{**neutral_generation(config)["generate_greedy"], "num_beams": beams})
    neutral.pad_token_id = config.pad_token_id or 0
    neutral.max_new_tokens = NEW_TOKENS
    neutral.early_stopping = True if beams > 1 else None
    model.generation_config = engine.generation_config = neutral
    ours = model.generate(input_ids=ids, attention_mask=mask)
    theirs = engine.generate(input_ids=ids, attention_mask=mask)
    begin = ids.shape[1] if config.stack == "decoder" else 1
    ends = ends_of(config)
    pairs = zip(ours[:, begin:].tolist(), theirs[:, begin:].tolist(), strict=True)
    return sum(until(ends, one) == until(ends, other) for one, other in pairs) / len(ours)


def until(ends: list[int], tokens: list[int]) -> list[int]:
    """Cut what follows an end, which everybody fills in another way."""
    places = [tokens.index(end) for end in ends if end in tokens]
    return tokens[: min(places) + 1] if places else tokens
