"""Answers of a model and of its export in CTranslate2 for the same inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationConfig

from zoo.models import ZooConfig, ZooPreTrainedModel

from ..engine import ScoredText
from ..errors import require
from ..verification import (
    ROUNDING,
    Answers,
    Difference,
    draw_tokens,
    ends_of,
    judge,
    log_probabilities,
    neutral_generation,
    padded,
)
from ..weights import in_dtype
from .running import CTranslate2Model

INPUTS = 100
"""How many random inputs greedy and beam search are compared on."""

NEW_TOKENS = 8


@dataclass(frozen=True)
class Sample:
    """Random inputs."""

    prompts: list[list[int]]
    targets: list[list[int]]


def draw(config: ZooConfig, seed: int = 0) -> Sample:
    generator = torch.Generator().manual_seed(seed)
    longest = min(9, config.max_position_embeddings - NEW_TOKENS - 1)
    special = {config.pad_token_id, config.bos_token_id, config.decoder_start_token_id, *ends_of(config)}

    def ids(size: int) -> list[int]:
        return draw_tokens(int(torch.randint(1, longest + 1, (), generator=generator)), size, special, generator)

    prompts = [ids(config.vocab_size) for _ in range(INPUTS)]
    targets = [ids(config.decoder_vocab_size) for _ in range(INPUTS)] if config.stack == "encoder-decoder" else []
    return Sample(prompts, targets)


def check_ctranslate2(model: ZooPreTrainedModel, folder: Path, dtype: str = "float32", seed: int = 0) -> Difference:
    """Load an export, and compare probabilities, outputs and decoded tokens with the original's."""
    require("ctranslate2", "ctranslate2")
    engine = CTranslate2Model.open(folder)
    sample = draw(model.config, seed)

    def answers(one: ZooPreTrainedModel | CTranslate2Model, rows: list[Tensor]) -> Answers:
        outputs = {f"output {number}": row for number, row in enumerate(rows)}
        return outputs | (decoded(one, sample) if model.can_generate() else {})

    def ours(dtype: str) -> Answers:
        reference = in_dtype(model, dtype)
        return answers(reference, outputs(reference, sample))

    tolerance = ROUNDING if dtype == "float32" else math.inf
    return judge(ours, {"float32": answers(engine, outputs_there(engine, sample))}, "CTranslate2", tolerance)


@torch.no_grad()
def outputs(model: ZooPreTrainedModel, sample: Sample) -> list[Tensor]:
    """Outputs of the model.

    Returns:
        Log-probabilities (of the target's tokens for an encoder-decoder, of all tokens for a decoder), or hidden
        states, an input.
    """
    config = model.config
    if config.stack == "decoder":
        return log_probabilities(model, sample.prompts)
    ids, mask = padded(sample.prompts, config.pad_token_id or 0)
    if config.stack == "encoder":
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
        return [row[:length] for row, length in zip(hidden, mask.sum(1).tolist(), strict=True)]
    end, start = ends_of(config)[0], int(config.decoder_start_token_id or 0)
    given, kept = padded([[start, *target] for target in sample.targets], config.pad_token_id or 0)
    expected, _ = padded([[*target, end] for target in sample.targets], 0)
    logits = model(input_ids=ids, attention_mask=mask, decoder_input_ids=given, use_cache=False).logits
    chosen = logits.log_softmax(-1).gather(2, expected[..., None])[..., 0]
    return [row[:length] for row, length in zip(chosen, kept.sum(1).tolist(), strict=True)]


def outputs_there(engine: CTranslate2Model, sample: Sample) -> list[Tensor]:
    """Outputs of the export. Arguments and result as for [`outputs`][]."""
    if engine.config.stack == "encoder-decoder":
        end = ends_of(engine.config)[0]
        pairs = zip(sample.prompts, sample.targets, strict=True)
        texts = [ScoredText(prompt, [*target, end], []) for prompt, target in pairs]
        return [torch.tensor(row) for row in engine.score(texts)]
    if engine.config.stack == "encoder":
        ids, mask = padded(sample.prompts, engine.config.pad_token_id or 0)
        rows = engine.encode(ids, mask.bool())
    else:
        prompts = [[engine.vocabularies.source[number] for number in row] for row in sample.prompts]
        rows = torch.as_tensor(np.array(engine.engine.forward_batch(prompts, return_log_probs=True))).float()
    return [row[: len(prompt)] for row, prompt in zip(rows, sample.prompts, strict=True)]


def decoded(model: ZooPreTrainedModel | CTranslate2Model, sample: Sample) -> Answers:
    """Tokens by plain search, zeros after an end."""
    config = model.config
    ids, mask = padded(sample.prompts, config.pad_token_id or 0, "left" if config.stack == "decoder" else "right")
    begin = ids.shape[1] if config.stack == "decoder" else 1
    found = {}
    for batch, options in neutral_generation(config).items():
        changes = {"pad_token_id": config.pad_token_id or 0, "max_new_tokens": NEW_TOKENS}
        model.generation_config = GenerationConfig(**{**options, **changes})
        model.generation_config.early_stopping = True if options["num_beams"] > 1 else None
        tokens = model.generate(input_ids=ids, attention_mask=mask)[:, begin:]
        ended = torch.isin(tokens, torch.tensor([end for end in ends_of(config) if end is not None]))
        tokens = tokens.masked_fill(ended.cumsum(1) > ended.long(), 0)
        found[f"{batch}.tokens"] = F.pad(tokens, (0, NEW_TOKENS - tokens.shape[1]))
    return found
