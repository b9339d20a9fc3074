"""Writes a model for CTranslate2, and compares what it computes there."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers.utils import CONFIG_NAME

from zoo.models import ZooConfig, ZooPreTrainedModel

from ..errors import VerificationError
from ..extras import require
from ..symmetries import Route
from ..verification import NOISE, ROUNDING, Difference
from ..weights import save_generation, weights_of
from .running import load_ctranslate2
from .specification import specify
from .vocabulary import read_vocabularies

INPUTS = 100
"""How many random inputs greedy and beam search are compared on."""

BEAMS = 4
NEW_TOKENS = 8


def write_ctranslate2(
    model: ZooPreTrainedModel, folder: Path, route: Route, dtype: str = "float32", tokenizers: Path | None = None
) -> None:
    """Write weights, vocabularies and configuration.

    Args:
        model: A model of the zoo.
        folder: An empty folder.
        route: The way to settings that CTranslate2 has, without obstacles.
        dtype: How weights are stored, one of the target's `dtypes`.
        tokenizers: A folder with the tokenizers whose tokens name the ids.
    """
    config = route.config
    # Quantisation scales weights in place, also those that are still the model's own.
    copies = dtype != "float32"
    state = route({name: tensor.to("cpu", torch.float32, copy=copies) for name, tensor in weights_of(model).items()})
    spec = specify(config, state)
    vocabularies = read_vocabularies(config, tokenizers)
    if config.stack == "encoder-decoder":
        spec.register_source_vocabulary(list(vocabularies.source))
        spec.register_target_vocabulary(list(vocabularies.target))
        spec.config.decoder_start_token = vocabularies.target[int(config.decoder_start_token_id or 0)]
    else:
        spec.register_vocabulary(list(vocabularies.source))
    name_special(spec, config, vocabularies.target if config.stack != "encoder" else vocabularies.source)
    spec.config.layer_norm_epsilon = config.layer_norm_eps
    spec.validate()
    spec.optimize(quantization=dtype)
    spec.save(str(folder))
    join_configs(folder / CONFIG_NAME, model)
    if model.can_generate():
        save_generation(model, folder)


def name_special(spec: Any, config: ZooConfig, tokens: tuple[str, ...]) -> None:
    """Say which tokens begin, end, and stand for what is unknown.

    Args:
        spec: The specification, changed here.
        config: The settings.
        tokens: A token for every id.
    """
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    first = next((number for number in (config.bos_token_id, *ends, 0) if number is not None), 0)
    spec.config.bos_token = tokens[first]
    spec.config.eos_token = tokens[ends[0] if ends[0] is not None else 0]
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    spec.config.unk_token = next((token for token in ("[UNK]", "<unk>") if token in tokens), tokens[pad])


def join_configs(path: Path, model: ZooPreTrainedModel) -> None:
    """Keep the zoo's own settings beside those that CTranslate2 reads.

    Args:
        path: CTranslate2's config.json.
        model: The original.
    """
    saved = json.loads(path.read_text(encoding="utf-8"))
    own = json.loads(model.config.to_json_string(use_diff=False))
    own["architectures"] = [type(model).__name__]
    path.write_text(json.dumps({**own, **saved}, indent=2, sort_keys=True) + "\n", encoding="utf-8")


@dataclass(frozen=True)
class Sample:
    """Random inputs.

    Args:
        prompts: What the model reads.
        targets: What an encoder-decoder is made to say.
    """

    prompts: list[list[int]]
    targets: list[list[int]]


def draw(config: ZooConfig, seed: int = 0) -> Sample:
    """Draw random inputs of different lengths.

    Args:
        config: The settings.
        seed: Of the random numbers.
    """
    generator = torch.Generator().manual_seed(seed)
    longest = min(9, config.max_position_embeddings - NEW_TOKENS - 1)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    special = {config.pad_token_id, config.bos_token_id, config.decoder_start_token_id, *ends}

    def ids(size: int) -> list[int]:
        valid = [number for number in range(size) if number not in special]
        length = int(torch.randint(1, longest + 1, (), generator=generator))
        places = torch.randint(0, len(valid), (length,), generator=generator)
        return [valid[place] for place in places.tolist()]

    prompts = [ids(config.vocab_size) for _ in range(INPUTS)]
    targets = [ids(config.decoder_vocab_size) for _ in range(INPUTS)] if config.stack == "encoder-decoder" else []
    return Sample(prompts, targets)


def check_ctranslate2(model: ZooPreTrainedModel, folder: Path, dtype: str = "float32", seed: int = 0) -> Difference:
    """Load an export, and compare probabilities and outputs with the original's.

    Args:
        model: The original.
        folder: The export.
        dtype: How its weights are stored; only float32 has to be equal.
        seed: Of the inputs.

    Returns:
        The difference: of log-probabilities, or of an encoder's hidden states.

    Raises:
        VerificationError: When it is too large, or other tokens are decoded.
    """
    require("ctranslate2", "ctranslate2")
    from .comparing import decoded, in_float, outputs, outputs_there

    engine = load_ctranslate2(folder)
    reference = in_float(model)
    sample = draw(model.config, seed)
    ours = outputs(reference, sample)
    theirs = outputs_there(engine, sample)
    difference = largest(ours, theirs)
    scale = max(1.0, *(float(tensor.abs().max()) for tensor in ours))
    allowed = ROUNDING * scale
    if dtype == "float32" and difference > allowed:
        precise = [tensor.float() for tensor in outputs(in_float(model, torch.float64), sample)]
        allowed = max(allowed, NOISE * largest(ours, precise))
    if difference != difference or (dtype == "float32" and difference > allowed):
        raise VerificationError(f"in CTranslate2 it differs by {difference:.2g} in {dtype} (allowed {allowed:.2g})")
    if not model.can_generate():
        return Difference(difference, None, scale, len(ours), None)
    same = {beams: decoded(reference, engine, sample, beams) for beams in (1, BEAMS)}
    for beams, share in same.items():
        if dtype == "float32" and share < 1.0:
            how = "greedily" if beams == 1 else f"with {beams} beams"
            raise VerificationError(
                f"CTranslate2 decodes other tokens {how} in {round((1 - share) * INPUTS)} of {INPUTS} inputs"
            )
    return Difference(difference, None, scale, len(ours), same[1] == 1.0, same[BEAMS] == 1.0)


def largest(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Largest difference of outputs.

    Returns:
        The largest absolute difference.
    """
    return max(float((one - other).abs().max()) for one, other in zip(ours, theirs, strict=True))
