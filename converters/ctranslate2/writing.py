"""Writes a model for CTranslate2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers.utils import CONFIG_NAME

from zoo.models import ZooConfig, ZooPreTrainedModel

from ..samples import ends_of
from ..symmetries import Route
from ..weights import save_generation, weights_of
from .specification import specify
from .vocabulary import read_vocabularies


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
    """Describe which tokens begin, end, and stand for what is unknown."""
    ends = ends_of(config)
    first = next((number for number in (config.bos_token_id, *ends, 0) if number is not None), 0)
    spec.config.bos_token = tokens[first]
    spec.config.eos_token = tokens[ends[0] if ends[0] is not None else 0]
    pad = config.pad_token_id if config.pad_token_id is not None else 0
    spec.config.unk_token = next((token for token in ("[UNK]", "<unk>") if token in tokens), tokens[pad])


def join_configs(path: Path, model: ZooPreTrainedModel) -> None:
    """Keep the zoo's own settings beside those that CTranslate2 reads."""
    saved = json.loads(path.read_text(encoding="utf-8"))
    own = json.loads(model.config.to_json_string(use_diff=False))
    own["architectures"] = [type(model).__name__]
    path.write_text(json.dumps({**own, **saved}, indent=2, sort_keys=True) + "\n", encoding="utf-8")
