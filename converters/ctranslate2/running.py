"""Runs an export in CTranslate2, with the `generate` of a model of transformers."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, ConfigError, InputError, first_line
from zoo.base.folders import TARGET_FOLDER, TOKENIZER_FILE
from zoo.models import ZooConfig, ZooPreTrainedModel

from ..engine import ScoredText, WritingModel, Written, is_scored
from ..verification import (
    ROUNDING,
    Answers,
    Difference,
    draw_tokens,
    ends_of,
    judge,
    lengths,
    log_probabilities,
    long_lengths,
    neutral_generation,
    padded,
)
from ..weights import in_dtype
from .planning import check_products, library, looks_back, options_of


class Vocabularies(NamedTuple):
    """A token for every id, no two alike."""

    source: tuple[str, ...]
    target: tuple[str, ...]


def read_vocabularies(config: ZooConfig, folder: Path | None) -> Vocabularies:
    """Name every id, by the tokenizers in a folder if it has some."""
    apart = config.stack == "encoder-decoder" and not config.share_encoder_decoder_embeddings
    size = config.decoder_vocab_size if apart else config.vocab_size
    own = None if folder is None else folder / TARGET_FOLDER
    source = tokens_of(folder, config.vocab_size)
    return Vocabularies(source, tokens_of(own if own is not None and own.is_dir() else folder, size))


def tokens_of(folder: Path | None, size: int) -> tuple[str, ...]:
    named: dict[int, str] = {}
    if folder is not None and (folder / TOKENIZER_FILE).is_file():
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


WHOLE = {"max_input_length": 0}  # Reads texts as they are; by default CTranslate2 cuts them after 1024 tokens


class CTranslate2Model(WritingModel):
    """An export as a model of transformers that generates and scores."""

    engine_name = "CTranslate2"

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.folder, self.samples = folder, False
        self.engine = self.load()
        self.vocabularies = saved_vocabularies(folder)
        self.numbers = {token: number for number, token in enumerate(self.vocabularies.target)}

    def load(self) -> Any:
        found = library()
        kinds = {"encoder-decoder": found.Translator, "decoder": found.Generator, "encoder": found.Encoder}
        try:
            engine = kinds[self.config.stack](str(self.folder), device="cpu", intra_threads=torch.get_num_threads())
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(f"CTranslate2 cannot load {self.folder}: {first_line(error)}") from error
        check_products(engine.compute_type)
        return engine

    def run(self, task: str, *inputs: Any, **options: Any) -> Any:
        try:
            return getattr(self.engine, task)(*inputs, **options)
        except (RuntimeError, ValueError) as error:
            raise InputError(f"CTranslate2 refuses these inputs: {first_line(error)}") from error

    def seed(self) -> None:
        """Seed sampling by torch's generator. An engine reads one seed, so another is loaded if the folder is there."""
        library().set_random_seed(int(torch.randint(2**31, ())))
        if self.samples and self.folder.is_dir():
            self.engine = self.load()
        self.samples = True

    def tokens(self, input_ids: Tensor, mask: Tensor) -> list[list[str]]:
        names, rows = self.vocabularies.source, zip(input_ids, mask, strict=True)
        return [[names[number] for number in ids[kept].tolist()] for ids, kept in rows]

    def write(self, input_ids: Tensor, mask: Tensor, settings: GenerationConfig) -> list[list[Written]]:
        found = self.decode(self.tokens(input_ids, mask), settings)
        if not is_scored(settings):
            return [[(ids, 0.0) for ids in outputs] for outputs in found]
        prompts = [ids[kept].tolist() for ids, kept in zip(input_ids, mask, strict=True)]
        pairs = zip(prompts, found, strict=True)
        # Its search scores what penalties and minimal lengths leave, over a power of the length.
        scores = iter(self.score([ScoredText(prompt, ids, ids) for prompt, outputs in pairs for ids in outputs]))
        return [[(ids, fmean(next(scores))) for ids in outputs] for outputs in found]

    def encode(self, input_ids: Tensor, mask: Tensor) -> Tensor:
        found = np.array(self.run("forward_batch", self.tokens(input_ids, mask)).last_hidden_state)
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
            results = self.run("score_batch", wholes, **WHOLE)
            return [result.log_probs[-len(text.ids) :] for result, text in zip(results, texts, strict=True)]
        # It reads an end token after every text, with or without one there.
        end = ends_of(self.config)[0] or 0
        targets = [text.ids[:-1] if text.ids[-1] == end else text.ids for text in texts]
        results = self.run("score_batch", prompts, [[target[number] for number in ids] for ids in targets], **WHOLE)
        return [result.log_probs[: len(text.ids)] for result, text in zip(results, texts, strict=True)]

    def decode(self, prompts: list[list[str]], settings: GenerationConfig) -> list[list[list[int]]]:
        asked = options_of(settings, self.config)
        if settings.do_sample:
            self.seed()
        ends = ends_of(settings if settings.eos_token_id is not None else self.config)
        asked |= {"end_token": [self.vocabularies.target[end] for end in ends], "return_end_token": True}
        asked["max_batch_size"] = 0
        most, fewest = settings.max_new_tokens, settings.min_new_tokens or 0
        if not self.config.is_encoder_decoder:
            return self.continued(prompts, {**asked, "max_length": most, "min_length": fewest})
        asked |= {"max_decoding_length": most, "min_decoding_length": fewest, **WHOLE}
        found = self.run("translate_batch", prompts, **asked)
        start = self.vocabularies.target[int(self.config.decoder_start_token_id or 0)]
        written = [tokens for result in found for tokens in result.hypotheses]
        for name, size in {"repetition_penalty": 1, "no_repeat_ngram_size": settings.no_repeat_ngram_size}.items():
            if name in looks_back(settings) and any(begins_again([start, *tokens], size) for tokens in written):
                raise ConfigError(
                    f"CTranslate2 repeats the beginning of a text, {start!r} included, which {name} prevents in "
                    "transformers; leave the setting out, or use another engine"
                )
        return [[[self.numbers[token] for token in tokens] for tokens in result.hypotheses] for result in found]

    def continued(self, prompts: list[list[str]], asked: dict[str, Any]) -> list[list[list[int]]]:
        """Continue prompts, those of one length at a time."""
        places: dict[int, list[int]] = {}
        for place, prompt in enumerate(prompts):
            places.setdefault(len(prompt), []).append(place)
        results: dict[int, list[list[int]]] = {}
        for alike in places.values():
            batch = [prompts[place] for place in alike]
            found = self.run("generate_batch", batch, include_prompt_in_result=False, **asked)
            results |= {place: result.sequences_ids for place, result in zip(alike, found, strict=True)}
        return [results[place] for place in range(len(prompts))]


def begins_again(text: list[str], size: int) -> bool:
    """Whether the first few tokens of a text recur in it."""
    return any(text[place : place + size] == text[:size] for place in range(1, len(text) - size + 1))


INPUTS = 100  # How many random inputs greedy and beam search are compared on

NEW_TOKENS = 8


class Sample(NamedTuple):
    """Random inputs; those of one text alone are long."""

    prompts: list[list[int]]
    targets: list[list[int]]


def draw(config: ZooConfig, longest: int, rows: int = 1) -> Sample:
    generator = torch.Generator().manual_seed(0)
    fewest = longest if rows == 1 else 1
    special = {config.pad_token_id, config.bos_token_id, config.decoder_start_token_id, *ends_of(config)}

    def ids(size: int) -> list[int]:
        return draw_tokens(int(torch.randint(fewest, longest + 1, (), generator=generator)), size, special, generator)

    prompts = [ids(config.vocab_size) for _ in range(rows)]
    targets = [ids(config.decoder_vocab_size) for _ in range(rows)] if config.stack == "encoder-decoder" else []
    return Sample(prompts, targets)


def check_ctranslate2(model: ZooPreTrainedModel, folder: Path, dtype: str = "float32") -> Difference:
    engine = CTranslate2Model(ZooConfig.from_pretrained(folder), folder)
    sample = draw(model.config, lengths(model.config, new_tokens=NEW_TOKENS)[0], INPUTS)
    samples = [sample, *(draw(model.config, length - 1) for length in long_lengths(model))]

    def answers(one: Any, run: Callable[[Any, Sample], list[Tensor]]) -> Answers:
        rows = [row for sample in samples for row in run(one, sample)]
        found = {f"output {number}": row for number, row in enumerate(rows)}
        return found | (decoded(one, sample) if model.can_generate() else {})

    tolerance = ROUNDING if dtype == "float32" else math.inf
    theirs = {"float32": answers(engine, outputs_there)}
    return judge(lambda dtype: answers(in_dtype(model, dtype), outputs), theirs, "CTranslate2", tolerance)


@torch.no_grad()
def outputs(model: ZooPreTrainedModel, sample: Sample) -> list[Tensor]:
    """Log-probabilities (of a target's tokens, or of all of a decoder) or hidden states, an input."""
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
        rows = torch.as_tensor(np.array(engine.run("forward_batch", prompts, return_log_probs=True))).float()
    return [row[: len(prompt)] for row, prompt in zip(rows, sample.prompts, strict=True)]


def decoded(model: ZooPreTrainedModel | CTranslate2Model, sample: Sample) -> Answers:
    """Tokens by plain search, zeros after an end."""
    config = model.config
    ids, mask = padded(sample.prompts, config.pad_token_id or 0, "left" if config.stack == "decoder" else "right")
    begin = ids.shape[1] if config.stack == "decoder" else 1
    _, most = lengths(config, new_tokens=NEW_TOKENS)
    found = {}
    for batch, options in neutral_generation(config).items():
        changes = {"pad_token_id": config.pad_token_id or 0, "max_new_tokens": most}
        model.generation_config = GenerationConfig(**{**options, **changes})
        model.generation_config.early_stopping = True if options["num_beams"] > 1 else None
        tokens = model.generate(input_ids=ids, attention_mask=mask)[:, begin:]
        ended = torch.isin(tokens, torch.tensor([end for end in ends_of(config) if end is not None]))
        tokens = tokens.masked_fill(ended.cumsum(1) > ended.long(), 0)
        found[f"{batch}.tokens"] = F.pad(tokens, (0, most - tokens.shape[1]))
    return found
