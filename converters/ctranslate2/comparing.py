"""What a model and its export in CTranslate2 compute for the same inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from zoo.models import ZooPreTrainedModel

from ..samples import neutral_generation
from ..verification import in_dtype
from .running import CTranslate2Model
from .vocabulary import ends_of

if TYPE_CHECKING:
    from .writing import Sample

NEW_TOKENS = 8


def in_float(model: ZooPreTrainedModel, dtype: torch.dtype = torch.float32) -> ZooPreTrainedModel:
    """The original in another type.

    Returns:
        A copy on the CPU, in evaluation mode.
    """
    return in_dtype(model, dtype).to("cpu").eval()


def padded(rows: list[list[int]], pad: int, side: str = "right") -> tuple[Tensor, Tensor]:
    """Make a batch of lists.

    Args:
        rows: Ids.
        pad: What to fill up with.
        side: Where to.

    Returns:
        Ids and mask. *Shape:* (batch_size, seq_len)
    """
    ids = [torch.tensor(row) for row in rows]
    masks = [torch.ones_like(row) for row in ids]
    return (
        pad_sequence(ids, batch_first=True, padding_value=pad, padding_side=side),
        pad_sequence(masks, batch_first=True, padding_side=side),
    )


@torch.no_grad()
def outputs(model: ZooPreTrainedModel, sample: Sample) -> list[Tensor]:
    """What the model computes.

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
    """What the export computes. Arguments and result as for [`outputs`][]."""
    source, target = engine.vocabularies.source, engine.vocabularies.target
    prompts = [[source[number] for number in row] for row in sample.prompts]
    if engine.config.stack == "encoder-decoder":
        said = [[target[number] for number in row] for row in sample.targets]
        return [torch.tensor(result.log_probs) for result in engine.engine.score_batch(prompts, said)]
    if engine.config.stack == "encoder":
        found: Any = engine.engine.forward_batch(prompts).last_hidden_state
    else:
        found = engine.engine.forward_batch(prompts, return_log_probs=True)
    rows = torch.as_tensor(_array(found))
    return [row[: len(prompt)].float() for row, prompt in zip(rows, prompts, strict=True)]


def _array(view: Any) -> Any:
    import numpy as np

    return np.array(view)


def decoded(model: ZooPreTrainedModel, engine: CTranslate2Model, sample: Sample, beams: int) -> float:
    """How often both decode the same tokens, by plain search.

    Args:
        model: The model; its generation configuration is replaced.
        engine: Its export; likewise.
        sample: Inputs.
        beams: Width of the search.

    Returns:
        The share of inputs.
    """
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
    """Cut what follows an end, which everybody fills in another way.

    Args:
        ends: Ids that end a sequence.
        tokens: Ids.

    Returns:
        The ids up to the first end.
    """
    places = [tokens.index(end) for end in ends if end in tokens]
    return tokens[: min(places) + 1] if places else tokens
