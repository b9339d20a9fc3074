"""Fingerprints: a model's logits on a fixed input, recorded with weights and compared when they are loaded.

A change of a variant's code that changes what it computes would make weights that were trained before it useless, and
nothing else would tell.
"""

from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from zoo.base.errors import CheckpointError
from zoo.base.files import read_json
from zoo.models import ZooPreTrainedModel

LENGTH, NUM_LOGITS, STEP = 8, 16, 37
"""Tokens of the fixed input, logits of a fingerprint, and how far the ids of neighbouring tokens are apart."""

TOLERANCE = 1e-3
"""How far logits may lie apart, in parts of the largest one: rounding on another machine makes 1e-5 of it."""


@torch.no_grad()
def fingerprint(model: ZooPreTrainedModel) -> tuple[float, ...]:
    inputs = {"input_ids": fixed_ids(model.config.vocab_size, model)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = fixed_ids(model.config.decoder_vocab_size or model.config.vocab_size, model)
    output = model(**inputs)
    values = output["logits"] if "logits" in output else output["last_hidden_state"]
    flat = values.float().flatten()
    places = torch.linspace(0, len(flat) - 1, NUM_LOGITS).round().long()
    return tuple(round(value, 6) for value in flat[places.to(flat.device)].tolist())


def fixed_ids(vocab_size: int, model: ZooPreTrainedModel) -> Tensor:
    """Fixed ids that a model can read, on its device. *Shape:* (1, seq_len)."""
    length = min(LENGTH, model.config.max_position_embeddings)
    return (torch.arange(1, length + 1, device=model.device) * STEP % vocab_size)[None]


def recorded_fingerprint(file: Path) -> tuple[float, ...]:
    """The fingerprint in a record of weights; CheckpointError if that is damaged."""
    try:
        recorded = read_json(file)["fingerprint"]
        if all(isinstance(value, (int, float)) for value in recorded):
            return tuple(map(float, recorded))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise CheckpointError(f"{file}, the record of these weights, is damaged: {error}") from error
    raise CheckpointError(f"{file} is no record of weights")


def check_fingerprint(model: ZooPreTrainedModel, recorded: Sequence[float], folder: Path) -> None:
    """Require a model to compute what it did when its weights were recorded."""
    if model.device.type == "meta":
        return
    found = fingerprint(model)
    scale = max(map(abs, recorded))
    apart = max((abs(one - other) for one, other in zip(found, recorded, strict=False)), default=0.0)
    if len(found) != len(recorded) or not apart <= TOLERANCE * scale:  # NaN is not
        raise CheckpointError(
            f"the weights in {folder} no longer compute what they did: on a fixed input a logit is {apart:.2g} away "
            f"from what was recorded. The code of variant {model.config.variant!r}, or of a part of it, has changed"
        )
