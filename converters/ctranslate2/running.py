"""Runs an export in CTranslate2, with the `generate` of a model of transformers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, first_line
from zoo.models import ZooConfig

from ..engine import DEFAULT_LENGTH, ScoredText, WritingModel, Written
from ..verification import ends_of
from .planning import options_of

TARGET_FOLDER = "target"
"""Where a checkpoint holds the target's own tokenizer."""


@dataclass(frozen=True)
class Vocabularies:
    """A token for every id, no two alike."""

    source: tuple[str, ...]
    target: tuple[str, ...]


def read_vocabularies(config: ZooConfig, folder: Path | None) -> Vocabularies:
    """Name every id, by the tokenizers in a folder if it has some."""
    size = config.decoder_vocab_size if config.stack == "encoder-decoder" else config.vocab_size
    if config.stack == "encoder-decoder" and config.share_encoder_decoder_embeddings:
        size = config.vocab_size
    own = None if folder is None else folder / TARGET_FOLDER
    source = tokens_of(folder, config.vocab_size)
    return Vocabularies(source, tokens_of(own if own is not None and own.is_dir() else folder, size))


def tokens_of(folder: Path | None, size: int) -> tuple[str, ...]:
    """Name ids by a tokenizer, or by their numbers."""
    named: dict[int, str] = {}
    if folder is not None and (folder / "tokenizer.json").is_file():
        from transformers import AutoTokenizer

        tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        named = {number: token for token, number in tokenizer.get_vocab().items()}
    found: dict[str, None] = {}
    for number in range(size):
        token = named.get(number, f"<{number}>")
        while token in found:
            token = f"<{number}>{token}"
        found[token] = None
    return tuple(found)


def saved_vocabularies(folder: Path) -> Vocabularies:

    def tokens(*names: str) -> tuple[str, ...]:
        for name in names:
            if (folder / name).is_file():
                return tuple(json.loads((folder / name).read_text(encoding="utf-8")))
        raise CheckpointError(f"{folder} has no {names[0]}")

    shared = ("shared_vocabulary.json", "vocabulary.json")
    return Vocabularies(tokens("source_vocabulary.json", *shared), tokens("target_vocabulary.json", *shared))


WHOLE = {"max_input_length": 0}
"""Reads texts as they are; by default CTranslate2 cuts them after 1024 tokens."""


class CTranslate2Model(WritingModel):
    """An export as a model of transformers that generates and scores."""

    engine_name = "CTranslate2"

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        import ctranslate2

        kinds = {
            "encoder-decoder": ctranslate2.Translator,
            "decoder": ctranslate2.Generator,
            "encoder": ctranslate2.Encoder,
        }
        try:
            self.engine = kinds[config.stack](str(folder), device="cpu", intra_threads=torch.get_num_threads())
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"CTranslate2 cannot load {folder}: {first_line(error)}") from error
        self.vocabularies = saved_vocabularies(folder)
        self.numbers = {token: number for number, token in enumerate(self.vocabularies.target)}

    def tokens(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> list[list[str]]:
        """Tokens of each sequence of ids, without padding."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        names = self.vocabularies.source
        rows = zip(input_ids, mask.bool(), strict=True)
        return [[names[number] for number in ids[kept].tolist()] for ids, kept in rows]

    def write(self, input_ids: Tensor, mask: Tensor, settings: GenerationConfig) -> list[list[Written]]:
        results = self.decode(self.tokens(input_ids, mask), settings, input_ids.shape[1])
        return [list(zip(*result, strict=True)) for result in results]

    def encode(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        found = np.array(self.engine.forward_batch(self.tokens(input_ids, mask)).last_hidden_state)
        hidden_states = torch.zeros(*mask.shape, found.shape[-1])
        for row, (kept, states) in enumerate(zip(mask, torch.as_tensor(found), strict=True)):
            hidden_states[row, kept] = states[: int(kept.sum())].float()
        return hidden_states

    def score(self, texts: list[ScoredText]) -> list[list[float]]:
        source, target = self.vocabularies.source, self.vocabularies.target
        prompts = [[source[number] for number in text.prompt] for text in texts]
        if not self.config.is_encoder_decoder:
            wholes = [
                [*prompt, *(target[number] for number in text.ids)] for prompt, text in zip(prompts, texts, strict=True)
            ]
            results = self.engine.score_batch(wholes, **WHOLE)
            return [result.log_probs[-len(text.ids) :] for result, text in zip(results, texts, strict=True)]
        # It reads an end token after every text, with or without one there.
        end = ends_of(self.config)[0] or 0
        targets = [text.ids[:-1] if text.ids[-1] == end else text.ids for text in texts]
        results = self.engine.score_batch(prompts, [[target[number] for number in ids] for ids in targets], **WHOLE)
        return [result.log_probs[: len(text.ids)] for result, text in zip(results, texts, strict=True)]

    def decode(
        self, prompts: list[list[str]], settings: GenerationConfig, width: int
    ) -> list[tuple[list[list[int]], list[float]]]:
        """Let the engine decode: for every prompt its outputs as ids, ends included, and their scores."""
        causal = not self.config.is_encoder_decoder
        asked = options_of(settings)
        most = settings.max_new_tokens
        if most is None:
            most = (settings.max_length or DEFAULT_LENGTH) - (width if causal else 1)
        ends = ends_of(settings if settings.eos_token_id is not None else self.config)
        asked |= {
            "return_scores": True,
            "end_token": [self.vocabularies.target[end] for end in ends],
            "return_end_token": True,
            "max_batch_size": 0,
        }
        fewest = settings.min_new_tokens or 0
        if causal:
            return self.continued(prompts, {**asked, "max_length": most, "min_length": fewest})
        found = self.engine.translate_batch(
            prompts, max_decoding_length=most, min_decoding_length=fewest, **WHOLE, **asked
        )
        return [
            ([[self.numbers[token] for token in tokens] for tokens in result.hypotheses], list(result.scores))
            for result in found
        ]

    def continued(self, prompts: list[list[str]], asked: dict[str, Any]) -> list[tuple[list[list[int]], list[float]]]:
        """Continue prompts, those of one length at a time."""
        places: dict[int, list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(len(prompt), []).append(place)
        results: dict[int, tuple[list[list[int]], list[float]]] = {}
        for alike in places.values():
            batch = [prompts[place] for place in alike]
            found = self.engine.generate_batch(batch, include_prompt_in_result=False, **asked)
            for place, result in zip(alike, found, strict=True):
                results[place] = (result.sequences_ids, list(result.scores))
        return [results[place] for place in range(len(prompts))]
