"""Limits of CTranslate2: processors, models and generation settings that it has."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from typing import Any

from transformers import GenerationConfig

from zoo.base.errors import ConfigError
from zoo.fast.int8 import ONEDNN, overflows
from zoo.models import ZooConfig, ZooPreTrainedModel
from zoo.models.fields import ANY
from zoo.registry import Task

from ..engine import refuse_foreign, unfollowed
from ..errors import require
from ..native.common import TABLE_POSITIONS
from ..planning import arithmetic_of
from ..symmetries.base import LM_TASKS, find_route, plain_needs
from ..target import Reason, TargetPlan, because
from ..verification import ends_of
from ..weights import task_of


def library(module: str = "ctranslate2") -> Any:
    """A module of CTranslate2, which takes MKL in place of oneDNN where oneDNN's sums of int8 products overflow."""
    if sums_overflow() and "ctranslate2" not in sys.modules:
        os.environ.setdefault("CT2_USE_MKL", "1")  # read once, when it is first imported
    return require("ctranslate2", module)


def sums_overflow() -> bool:
    return platform.machine() in ("x86_64", "AMD64") and overflows(ONEDNN)


def check_products(compute_type: str) -> None:
    """Refuse integer weights where a program has imported CTranslate2 before the zoo could ask for MKL."""
    if compute_type.startswith("int") and sums_overflow() and os.environ.get("CT2_USE_MKL") != "1":
        raise ConfigError(
            f"CTranslate2 was imported before the zoo, and would compute {compute_type} with sums that overflow on "
            f"this processor (CT2_USE_MKL={os.environ.get('CT2_USE_MKL')!r}); set CT2_USE_MKL=1 before it is imported"
        )


OPTIONS = {  # CTranslate2's names of arguments
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "length_penalty": "length_penalty",
    "num_beams": "beam_size",
    "num_return_sequences": "num_hypotheses",
}

SAMPLING = {"temperature": "sampling_temperature", "top_k": "sampling_topk", "top_p": "sampling_topp"}

REPETITION = {"repetition_penalty": 1.0, "no_repeat_ngram_size": 0}
"""Settings that look back: at what the engine wrote, where transformers looks at the prompt or start token too."""


def foreign_settings(settings: GenerationConfig, config: ZooConfig) -> list[str]:
    foreign = unfollowed(settings, {*OPTIONS, "min_new_tokens"})
    if (settings.num_beams or 1) > 1 and settings.early_stopping == "never":
        foreign.append("early_stopping='never' (its beam search stops early)")
    if (settings.num_beams or 1) > 1 and settings.do_sample:
        foreign.append("do_sample with num_beams")
    if (settings.num_beams or 1) > 1:
        changed = [*looks_back(settings), *(["min_new_tokens"] if settings.min_new_tokens else [])]
        foreign += [f"{name} with num_beams (it changes logits, transformers log-probabilities)" for name in changed]
    if config.is_encoder_decoder and settings.decoder_start_token_id not in (None, config.decoder_start_token_id):
        foreign.append("decoder_start_token_id (it begins as it was exported)")
    if not config.is_encoder_decoder or config.decoder_start_token_id in ends_of(config):
        foreign += looks_back(settings)
    return foreign


def looks_back(settings: GenerationConfig) -> list[str]:
    """Settings that look back, of those that change something."""
    return [name for name, none in REPETITION.items() if getattr(settings, name) not in (None, none)]


def options_of(settings: GenerationConfig, config: ZooConfig) -> dict[str, Any]:
    refuse_foreign("CTranslate2", foreign_settings(settings, config))
    found: dict[str, Any] = {"beam_size": 1}  # its own default is 2
    found |= {theirs: value for name, theirs in OPTIONS.items() if (value := getattr(settings, name)) is not None}
    if settings.do_sample:
        found |= {theirs: getattr(settings, name) for name, theirs in SAMPLING.items() if getattr(settings, name)}
        found.setdefault("sampling_topk", 0)
        if settings.top_p == 0:  # the best token alone
            found["sampling_topk"] = 1
    return found


TASKS: Mapping[str, str] = {  # Stack by task. It has no other heads.
    Task.SEQ2SEQ_LM: "encoder-decoder",
    Task.CAUSAL_LM: "decoder",
    Task.FEATURE_EXTRACTION: "encoder",
}

ACTIVATIONS: Mapping[str, str] = {  # Its activations, by transformers' names
    "relu": "RELU",
    "gelu": "GELU",
    "gelu_new": "GELUTanh",
    "gelu_pytorch_tanh": "GELUTanh",
    "quick_gelu": "GELUSigmoid",
    "silu": "SWISH",
    "swish": "SWISH",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
}

FREE = (  # Settings that it expresses with any value
    *("attention_bias", "attention_out_bias", "attention_scale", "head_dim", "mlp_bias", "embedding_norm"),
    *("scale_embedding", "sinusoidal_theta", "relative_attention_num_buckets", "relative_attention_max_distance"),
    *("type_vocab_size", "final_norm"),
)

ABSOLUTE = (*TABLE_POSITIONS, "sinusoidal", "sinusoidal-halves", "none")
ROTARY = ("rotary", "rotary-interleaved")


def needs(config: ZooConfig, task: str) -> dict[str, Any]:
    """Values that CTranslate2 requires, by field, for the settings of a model; other fields are free."""
    placements = ("pre", "post") if config.stack == "encoder-decoder" else ("pre", "post", "sandwich")
    positions = (*ABSOLUTE, *ROTARY, "alibi" if config.stack == "decoder" else "t5")
    found: dict[str, Any] = {
        **dict.fromkeys(FREE, ANY),
        "feed_forward": ("mlp", "gated"),
        "hidden_act": tuple(ACTIVATIONS),
        "norm": ("layernorm", "rmsnorm"),
        "norm_placement": placements,
        "qk_norm": (None, "head") if config.norm == "rmsnorm" and config.stack != "encoder-decoder" else None,
        "position": positions,
    }
    if config.type_vocab_size:
        found["scale_embedding"] = False  # it would scale the token types as well
    if config.stack == "decoder":
        found |= {"num_key_value_heads": ANY, "parallel_residual": ANY}
        found |= {"norm": "layernorm", "norm_placement": "pre"} if config.parallel_residual else {}
    if task in LM_TASKS:
        found |= dict.fromkeys(("lm_head_bias", "final_logit_softcapping"), ANY)
        found["logit_scale"] = 1.0 if config.lm_head_bias else ANY  # it scales before the bias is added
    return found


def rotated(config: ZooConfig) -> int:
    asked = int(config.head_dim * config.rope_parameters.get("partial_rotary_factor", 1.0))
    return asked + asked % 2


def obstacles(config: ZooConfig) -> list[str]:
    rope = getattr(config, "rope_parameters", None) or {}
    found = []
    if config.position in ROTARY and rope.get("rope_type", "default") != "default":
        found.append(f"rope_type={rope['rope_type']!r}, it has 'default'")
    asked = config.head_dim * rope.get("partial_rotary_factor", 1.0)
    if config.position in ROTARY and int(asked) % 2 and int(asked) > 1:
        found.append(f"{int(asked)} dimensions of each head are rotated, it rotates pairs")
    if config.eos_token_id is None and config.stack != "encoder":
        found.append("eos_token_id is None, and it always ends at one")
    if config.stack == "encoder-decoder" and config.decoder_start_token_id is None:
        found.append("decoder_start_token_id is None")
    return found


def plan_ctranslate2(target: str, model: ZooPreTrainedModel) -> TargetPlan:
    config, task = model.config, task_of(model)
    if task not in TASKS:
        return TargetPlan.refused(target, f"it has no head for {task}")
    if TASKS[Task(task)] != config.stack:
        return TargetPlan.refused(target, f"it runs no {config.stack} for {task}")
    route = find_route(config, {**plain_needs(task), **needs(config, task)}, task)
    arithmetic = arithmetic_of(config, task)
    found = because(Reason.ENGINE, arithmetic.own)
    found += because(Reason.SETTING, [*route.obstacles, *obstacles(route.config)])
    notes = ["Give attention masks: the original made them from the ids."] if arithmetic.needs_masks else []
    if model.can_generate() and (foreign := foreign_settings(model.generation_config, config)):
        notes.append(
            f"CTranslate2 does not follow {', '.join(foreign)}, which the generation configuration asks for: `zoo "
            f"generate` will refuse until it is left out, as with --generation {foreign[0].split()[0]}=None."
        )
    return TargetPlan(target, type(model).__name__, route, tuple(found), tuple(notes))
