"""From texts to what a model writes for them."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from itertools import groupby
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, PreTrainedModel, PreTrainedTokenizerFast
from transformers.generation import BaseStreamer, StoppingCriteria, StoppingCriteriaList
from transformers.utils.logging import tqdm

from zoo.base.errors import ConfigError, SequenceTooLongError, UnknownOverrideError, raised_as
from zoo.base.synonyms import LENGTHS
from zoo.building.builder import check_seed
from zoo.building.quantizing import Int8Model
from zoo.converters.engine import WritingModel, unfollowed
from zoo.data.tokenizers import Tokenizers
from zoo.data.tokenizers.encoding import to_ids
from zoo.fast.captured_steps import CAPTURE_AFTER
from zoo.fast.generation import CachedGenerationMixin
from zoo.models.embedding import Position
from zoo.registry import Task

from .checkpoint import TokenizerSource, load_checkpoint


@dataclass(frozen=True)
class Candidate:
    """One text that a model wrote."""

    text: str  # The text, without the prompt
    score: float | None = (
        None  # Mean log-probability of its tokens in nats, the end included; None where it was not asked for
    )


@dataclass(frozen=True)
class Generation:
    """Output of a model for one text."""

    prompt: str  # The input
    candidates: tuple[Candidate, ...]  # The outputs: `num_return_sequences` texts, of beam search the best one first

    @property
    def text(self) -> str:
        """The first candidate's text."""
        return self.candidates[0].text

    def to_dict(self) -> dict[str, Any]:
        """`prompt` and `candidates`, each with `text` and `score`."""
        return asdict(self)


MAX_NEW_TOKENS = 128  # Default of the largest number of new tokens, where the model's positions allow it

COUNTS = (*LENGTHS, "num_beams", "num_return_sequences")
"""Options that transformers takes for whole numbers without looking."""

SHARES = ("top_p", "typical_p")  # Options that transformers leaves out without looking where they are above 1

LENGTHS_OF_RUNS = ("no_repeat_ngram_size", "encoder_no_repeat_ngram_size")
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("min_length", "min_new_tokens", "top_k", *LENGTHS_OF_RUNS), ((Integral,), "a whole number")),
    **dict.fromkeys(("assistant_early_exit", "prompt_lookup_num_tokens"), ((Integral,), "a whole number")),
    **dict.fromkeys(("bos_token_id", "decoder_start_token_id"), ((Integral,), "an id")),
    **dict.fromkeys(("max_time", "guidance_scale", "penalty_alpha", *SHARES), ((Real,), "a number")),
    **dict.fromkeys(("min_p", "top_h", "epsilon_cutoff", "eta_cutoff"), ((Real,), "a number")),
    **dict.fromkeys(("eos_token_id", "forced_eos_token_id"), ((Integral, list, tuple, Tensor), "an id, or several")),
    "begin_suppress_tokens": ((list, tuple, Tensor), "a list of ids"),
    "exponential_decay_length_penalty": ((list, tuple), "a length and a factor"),
    "stop_strings": ((str, list, tuple), "a text, or several"),
}
"""Types of options that transformers computes with without looking, and what they are."""


NEEDED = {
    "diversity_penalty": "num_beam_groups",
    "max_matching_ngram_size": "prompt_lookup_num_tokens",
    **dict.fromkeys(
        ("assistant_confidence_threshold", "num_assistant_tokens", "num_assistant_tokens_schedule"),
        "assistant_early_exit",
    ),
}
"""Options without an effect, and those that they need."""

LOOK_BACK = ("repetition_penalty", "no_repeat_ngram_size")
LOOK_AT_INPUT = ("encoder_repetition_penalty", "encoder_no_repeat_ngram_size")
"""Options by which tokens of a prompt, padding among them, change the scores of the same tokens."""


@torch.no_grad()
def generate(
    model: str | Path | PreTrainedModel,
    texts: str | Sequence[str],
    *,
    tokenizer: TokenizerSource | None = None,
    batch_size: int = 32,
    scores: bool = False,
    seed: int | None = None,
    device: str | torch.device | None = None,
    streamer: BaseStreamer | None = None,
    progress: bool = False,
    engine: str | None = None,
    **options: Any,
) -> list[Generation]:
    """Let a model write: the translation of each text, or its continuation.

    Texts are sorted into batches of similar lengths; the results are in the order of the texts.

    Args:
        model: A checkpoint's folder, the name of weights ("vanilla.en-pt"), a repository on the Hub ("org/name"), or a
            model: an encoder-decoder or a causal language model.
        texts: Input: one text, or several.
        tokenizer: The tokenizer or the folder it is in, by default the one next to the checkpoint.
        batch_size: Number of texts at a time.
        scores: Whether to score every output.
        seed: Makes sampling reproducible for the same texts and batches; torch's generators are left as they were.
            Refused without sampling, which it would not change.
        device: Where to run, by default on the GPU if available.
        streamer: For a single text: receives each token once it is generated, e.g. transformers' `TextStreamer`.
        progress: Whether to show a progress bar.
        engine: Where a checkpoint runs, one of `zoo.training.generation.ENGINES`: "torch", "torch-int8" (int8 weights
            on the CPU, other results), "onnx", "ctranslate2", ...; by default what its folder was exported for.
        options: Fields of transformers' `GenerationConfig`: `num_beams`, `max_new_tokens`, `do_sample`, `temperature`,
            `top_k`, `top_p`, `num_return_sequences`, ... By default greedy, and at most 128 new tokens.

    Returns:
        What was written for each text.

    Raises:
        UnknownOverrideError: When the option is unknown.
        ConfigError: When options are not valid or contradict each other, or the model does not write.
        CheckpointError: When the checkpoint does not exist, or has no tokenizer next to it.
        SequenceTooLongError: When a text has more tokens than the model has positions.
    """
    texts = [texts] if isinstance(texts, str) else list(texts)
    check_seed(seed or 0)
    if batch_size < 1:
        raise ConfigError(f"batch_size={batch_size} is not valid; at least 1 text at a time")
    writer, tokenizers = load_checkpoint(model, tokenizer=tokenizer, device=device, engine=engine, task=Task.CAUSAL_LM)
    if not writer.can_generate():
        raise ConfigError(f"{type(writer).__name__} does not write; valid are models for seq2seq-lm and causal-lm")
    settings = generation_config(writer, tokenizers.target, options)
    if seed is not None and not settings.do_sample:
        raise ConfigError(f"seed={seed} changes nothing without sampling: give do_sample=True, or leave it out")
    encoded = encode(texts, tokenizers, writer)
    batches = batches_of([len(ids) for ids in encoded], writer, settings, batch_size)
    written: list[tuple[Candidate, ...]] = [()] * len(texts)
    devices = [writer.device] if writer.device.type == "cuda" else []
    never_trains = isinstance(writer, Int8Model)  # its caches are of use only here
    writer = with_settings(writer, settings)
    with torch.inference_mode(never_trains), torch.random.fork_rng(devices=devices, enabled=seed is not None):
        if seed is not None:
            torch.manual_seed(seed)
        captures = isinstance(writer, CachedGenerationMixin) and not writer.config.is_encoder_decoder
        # Capture decode steps beforehand if enough may follow to make up for it.
        if captures and len(texts) // batch_size * (settings.max_new_tokens or 0) >= CAPTURE_AFTER:
            writer.prepare_for_generation(batch_size, num_beams=settings.num_beams)
        for places in tqdm(batches, disable=not progress, unit="batch"):
            ids = [encoded[i] for i in places]
            batch = write(writer, tokenizers.target, ids, settings, scores=scores, streamer=streamer)
            for place, candidates in zip(places, batch, strict=True):
                written[place] = candidates
    return [Generation(text, candidates) for text, candidates in zip(texts, written, strict=True)]


def generation_config(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, options: Mapping[str, Any]
) -> GenerationConfig:
    """The model's generation settings with changes, checked before anything is computed."""
    settings = copy.deepcopy(model.generation_config)
    valid = sorted(name for name in GenerationConfig().to_dict() if not name.startswith("_"))
    UnknownOverrideError.check(*options, valid=valid, owner="GenerationConfig")
    for name, value in options.items():
        if name in COUNTS and value is not None and not (type(value) is int and value >= 1):
            raise ConfigError(f"{name}={value!r} is not valid; valid: 1 and more")
        kinds, meaning = KINDS.get(name, ((object,), ""))
        if value is not None and (not isinstance(value, kinds) or (name in KINDS and isinstance(value, bool))):
            raise ConfigError(f"{name}={value!r} is not valid; it is {meaning}")
        if name in SHARES and isinstance(value, (int, float)) and value > 1:
            raise ConfigError(f"{name}={value!r} is not valid; valid: 0 to 1")
        setattr(settings, name, value)
    for name, needed in NEEDED.items():
        if options.get(name) is not None and getattr(settings, needed) is None:
            raise ConfigError(f"{name}={options[name]} was given, which has no effect without {needed}; give both")
    for new, whole in (LENGTHS, ("min_new_tokens", "min_length")):
        if None not in (options.get(new), options.get(whole)):
            raise ConfigError(f"{new}={options[new]} and {whole}={options[whole]} were given; give one of both")
    for given, other in (LENGTHS, LENGTHS[::-1]):
        if given in options and other not in options:
            setattr(settings, other, None)  # of two lengths, generation takes max_new_tokens
    if settings.eos_token_id is None:
        settings.eos_token_id = tokenizer.eos_token_id
    if settings.pad_token_id is None:
        ends = settings.eos_token_id
        end = ends[0] if isinstance(ends, (list, tuple)) else ends
        settings.pad_token_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else end
    try:
        settings.validate(strict=True, user_set_attributes=set(options))
    except (ValueError, TypeError, AttributeError) as error:  # raised by computing with options of any value
        raise ConfigError(f"generation options are not valid: {' '.join(str(error).split())}") from error
    refuse_impossible(settings, model)
    return settings


def refuse_impossible(settings: GenerationConfig, model: PreTrainedModel) -> None:
    """Refuse settings that transformers fails at without naming them."""
    kind = str(settings.cache_implementation)
    if kind.startswith("offloaded") and model.device.type == "cpu":
        raise ConfigError(
            f"cache_implementation={kind!r} was given, which a model on a CPU cannot offload: leave it out"
        )
    if settings.exponential_decay_length_penalty is not None and settings.eos_token_id is None:
        raise ConfigError(
            "exponential_decay_length_penalty was given, and there is no end token that it makes likelier"
        )
    if settings.is_assistant:
        raise ConfigError("is_assistant=True was given, which transformers sets for a model that drafts: leave it out")


def with_settings(model: PreTrainedModel, settings: GenerationConfig) -> PreTrainedModel:
    """The model, or a copy if transformers would fill unset settings by the model's; `write` looks for stop strings."""
    decided = copy.deepcopy(settings)
    decided.stop_strings = None
    own = model.generation_config.to_dict()
    if all(value is None or getattr(decided, name, None) is not None for name, value in own.items()):
        return model
    model = copy.copy(model)
    model.generation_config = decided
    return model


def encode(texts: Sequence[str], tokenizers: Tokenizers, model: PreTrainedModel) -> list[Tensor]:
    """Ids of each text, as a model reads it: as a whole, or to be continued."""
    causal = continues(model)
    tokenizer = tokenizers.source
    limit = position_limit(model)
    encoded = []
    for number, ids in enumerate(to_ids(tokenizer, texts), start=1):
        if causal and ids and ids[-1] == tokenizer.eos_token_id:
            ids = ids[:-1]  # nothing would follow an end
        if not ids:
            start = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
            if start is None:
                raise ConfigError(f"text {number} is empty, and the tokenizer has no token to begin with")
            ids = [start]
        if limit is not None and len(ids) > limit - causal:
            raise SequenceTooLongError(f"text {number} has {len(ids)} tokens; the model reads at most {limit - causal}")
        encoded.append(torch.tensor(ids))
    return encoded


def continues(model: PreTrainedModel) -> bool:
    return bool(model.can_generate() and not model.config.is_encoder_decoder)


def position_limit(model: PreTrainedModel) -> int | None:
    limits = [part.max_length for part in model.modules() if isinstance(part, Position)]
    return min((limit for limit in limits if limit is not None), default=None)


def end_somewhere(settings: GenerationConfig, model: PreTrainedModel, begin: int) -> None:
    """Give settings without a length the default one, of as many positions as are left after the first `begin`."""
    if all(getattr(settings, name) is None for name in LENGTHS):
        limit = position_limit(model)
        settings.max_new_tokens = MAX_NEW_TOKENS if limit is None else min(MAX_NEW_TOKENS, limit - begin)


def batches_of(
    lengths: Sequence[int], model: PreTrainedModel, settings: GenerationConfig, batch_size: int
) -> list[list[int]]:
    """Places of texts of these lengths, in batches of similar ones in which none changes how much follows another.

    The longest prompt counts in a batch's `max_length` and `min_length`, and in the positions that are left. Padding
    counts as a token of the text in penalties of repetition, and `forced_bos_token_id` follows a single token alone.
    """
    order = sorted(range(len(lengths)), key=lambda i: lengths[i])
    groups = [order]
    reads_padding = {*LOOK_AT_INPUT, *(LOOK_BACK if continues(model) else ())} & {*unfollowed(settings)}
    counts = settings.min_length or settings.forced_bos_token_id is not None
    if reads_padding or (continues(model) and (counts or settings.max_new_tokens is None)):
        by_length = reads_padding or counts or settings.max_length is not None
        limit = position_limit(model) or math.inf
        alike = [one if by_length else min(MAX_NEW_TOKENS, limit - one) for one in lengths]
        groups = [list(group) for _, group in groupby(order, key=lambda i: alike[i])]
    return [group[start : start + batch_size] for group in groups for start in range(0, len(group), batch_size)]


def pad(encoded: Sequence[Tensor], model: PreTrainedModel) -> tuple[Tensor, Tensor]:
    """Pad lists of ids: on the left for decoders, else on the right. Returns ids and mask, (batch_size, seq_len)."""
    side = "left" if continues(model) else "right"
    value = model.config.pad_token_id or 0
    ids = pad_sequence(list(encoded), batch_first=True, padding_value=value, padding_side=side)
    mask = pad_sequence([torch.ones_like(one) for one in encoded], batch_first=True, padding_side=side)
    return ids.to(model.device), mask.to(model.device)


class StopsAt(StoppingCriteria):
    """Stops an output that contains a string. That of transformers cannot read tokenizers of words."""

    def __init__(self, strings: str | Sequence[str], tokenizer: PreTrainedTokenizerFast, begin: int) -> None:
        self.strings = [strings] if isinstance(strings, str) else list(strings)
        self.tokenizer, self.begin = tokenizer, begin

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Whether each output ends. *Shape:* (num_sequences, length), then (num_sequences,)."""
        return torch.tensor([self.stops(ids) for ids in input_ids[:, self.begin :].tolist()], device=input_ids.device)

    def stops(self, ids: list[int]) -> bool:
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        return any(one in text for one in self.strings)

    def length(self, ids: list[int]) -> int:
        """How many ids of an output are its own: transformers writes on, or pads, until the whole batch has ended."""
        return next((length for length in range(1, len(ids)) if self.stops(ids[:length])), len(ids))


def take_stops(
    settings: GenerationConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, begin: int
) -> StoppingCriteriaList:
    """Replace `stop_strings` by a criterion, unless an engine writes, which refuses them."""
    if isinstance(model, WritingModel) or not settings.stop_strings:
        return StoppingCriteriaList()
    stops, settings.stop_strings = settings.stop_strings, None
    return StoppingCriteriaList([StopsAt(stops, tokenizer, begin)])


def options_explained() -> AbstractContextManager[None]:
    """Raise ConfigError for options that transformers looks at only while it generates."""
    return raised_as(ConfigError, "generation options are not valid: {}".format, ValueError, IndexError, ImportError)


def write(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerFast,
    encoded: Sequence[Tensor],
    settings: GenerationConfig,
    *,
    scores: bool = False,
    streamer: BaseStreamer | None = None,
) -> list[tuple[Candidate, ...]]:
    causal = not model.config.is_encoder_decoder
    ids, mask = pad(encoded, model)
    settings = copy.deepcopy(settings)
    end_somewhere(settings, model, ids.shape[1] if causal else 1)
    settings.return_dict_in_generate, settings.output_logits = True, scores
    begin = ids.shape[1] if causal else 1
    criteria = take_stops(settings, model, tokenizer, begin)
    more = {"stopping_criteria": criteria} if criteria else {}
    with options_explained():
        output = model.generate(
            input_ids=ids, attention_mask=mask, generation_config=settings, streamer=streamer, **more
        )
    sequences = output.sequences[:, begin:]
    written: list[list[int]] = sequences.tolist()
    lengths = [criteria[0].length(row) if criteria else len(row) for row in written]
    texts = [
        tokenizer.decode(row[:length], skip_special_tokens=True) for row, length in zip(written, lengths, strict=True)
    ]
    if not causal:
        texts = [text.strip() for text in texts]
    values: list[float | None] = [None] * len(texts)
    if scores:
        found = getattr(output, "sequences_scores", None)  # other engines score outputs themselves
        if found is None:
            beams = getattr(output, "beam_indices", None)
            found = mean_log_probability(output.logits, sequences, lengths, settings, beams)
        values = found.tolist()
    each = len(texts) // len(encoded)
    candidates = [Candidate(text, value) for text, value in zip(texts, values, strict=True)]
    return [tuple(candidates[i : i + each]) for i in range(0, len(candidates), each)]


def mean_log_probability(
    logits: Sequence[Tensor],
    sequences: Tensor,
    lengths: Sequence[int],
    settings: GenerationConfig,
    beams: Tensor | None = None,
) -> Tensor:
    """Mean log-probability of each output under the model, independent of temperature, penalties and other processors.

    transformers' `compute_transition_scores` takes the source's vocabulary for the target's, and its scores of beams
    are of processed logits, divided by a power of the length.

    Args:
        logits: A tensor per step. *Shape:* (num_sequences, vocab_size), with beams (num_texts * num_beams, vocab_size)
        sequences: The outputs, without prompts. *Shape:* (num_sequences, num_steps)
        lengths: How many tokens of each output count, unless an end comes before.
        beams: Row of the logits of each token, of beam search. *Shape:* (num_sequences, num_steps)
    """
    rows = torch.arange(len(sequences), device=sequences.device)[:, None] if beams is None else beams.clamp(min=0)
    # Beams that are left out at the end may be longer.
    steps = zip(logits, sequences.T, rows.expand_as(sequences).T, strict=False)
    chosen = torch.stack([step.float().log_softmax(-1)[row, ids] for step, ids, row in steps], dim=1)
    kept = torch.arange(chosen.shape[1]) < torch.tensor(lengths)[:, None]
    kept = kept.to(chosen.device)
    if settings.eos_token_id is not None:
        ends = torch.isin(sequences, torch.tensor(settings.eos_token_id, device=sequences.device)).long()
        kept &= (ends.cumsum(dim=1) - ends).eq(0)
    return chosen.mul(kept).sum(dim=1) / kept.sum(dim=1)
