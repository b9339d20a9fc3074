"""Generation settings of transformers in CTranslate2's words."""

from __future__ import annotations

from typing import Any

from transformers import GenerationConfig

from zoo.base.errors import ConfigError

OPTIONS = {
    "repetition_penalty": "repetition_penalty",
    "no_repeat_ngram_size": "no_repeat_ngram_size",
    "length_penalty": "length_penalty",
    "num_beams": "beam_size",
    "num_return_sequences": "num_hypotheses",
}
"""CTranslate2's names of arguments."""

SAMPLING = {"temperature": "sampling_temperature", "top_k": "sampling_topk", "top_p": "sampling_topp"}

SETTLED = {
    *OPTIONS,
    *SAMPLING,
    "do_sample",
    "early_stopping",
    "max_length",
    "max_new_tokens",
    "min_new_tokens",
    "use_cache",
    "return_dict_in_generate",
    "output_scores",
    "output_logits",
    "transformers_version",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "assistant_confidence_threshold",
    "assistant_lookbehind",
    "target_lookbehind",
}
"""Fields of a generation configuration that are followed, or that change nothing here."""

NEUTRAL = {"typical_p": 1.0, "encoder_repetition_penalty": 1.0, "num_beam_groups": 1}
"""Values that change nothing, and are written by transformers' trainer."""


def foreign_settings(settings: GenerationConfig) -> list[str]:
    """Find what CTranslate2 cannot follow."""
    changed = settings.to_diff_dict().items()
    # Zero is off, but for ids of tokens.
    given = {name for name, value in changed if value or (value == 0 and value is not False and name.endswith("_id"))}
    given = {name for name in given if getattr(settings, name, None) != NEUTRAL.get(name, ...)}
    foreign = sorted(name for name in given if name not in SETTLED and not name.startswith("_"))
    if (settings.num_beams or 1) > 1 and settings.early_stopping == "never":
        foreign.append("early_stopping='never' (its beam search stops early)")
    if (settings.num_beams or 1) > 1 and settings.do_sample:
        foreign.append("do_sample with num_beams")
    return foreign


def options_of(settings: GenerationConfig) -> dict[str, Any]:
    """Translate generation settings."""
    if foreign := foreign_settings(settings):
        raise ConfigError(f"CTranslate2 does not follow {', '.join(foreign)}; leave it out, or use another engine")
    found: dict[str, Any] = {"beam_size": 1}  # its own default is 2
    found |= {
        theirs: getattr(settings, name) for name, theirs in OPTIONS.items() if getattr(settings, name) is not None
    }
    if settings.do_sample:
        found |= {theirs: getattr(settings, name) for name, theirs in SAMPLING.items() if getattr(settings, name)}
        found.setdefault("sampling_topk", 0)
    return found
