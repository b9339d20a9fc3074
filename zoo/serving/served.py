"""A model that is served: texts to ids, ids to pieces of text or to embeddings."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor
from torch.nn.functional import normalize
from transformers import PreTrainedModel
from transformers.generation import LogitsProcessor, StoppingCriteria

from zoo.base.errors import ConfigError, SequenceTooLongError, ZooError
from zoo.converters.engine import WritingModel
from zoo.data.tokenizers import Tokenizers
from zoo.fast.matmul import fast_matmul
from zoo.models import ZooForMaskedLM, ZooModel
from zoo.models.transformer import pool_mean
from zoo.training.generation import load_checkpoint
from zoo.training.generation.checkpoint import TokenizerSource
from zoo.training.generation.generating import (
    batches_of,
    encode,
    generation_config,
    options_explained,
    pad,
    position_limit,
    with_settings,
)

from .requests import RefusedRequestError
from .text import GrowingText, Piece

COLDEST = 1e-5  # The lowest temperature that is sampled at; below, the best token is taken
LOWEST = -9999.0  # The log-probability of what is impossible, as JSON has no infinity

EMBEDDED_AT_ONCE = 32


@dataclass(frozen=True)
class Job:
    """A request for text."""

    prompts: list[Tensor]  # Ids of each prompt. *Shape:* (seq_len,)
    each: int  # How many outputs a prompt
    max_tokens: int
    stops: Sequence[str]
    temperature: float  # Of sampling; 0 for the best token
    top_p: float  # The share of probability that is sampled from
    seed: int | None
    top: int | None  # How many log-probabilities a step; None for none, not even the written token's


class LastLogits(LogitsProcessor):
    """Keeps the model's own logits of the last step, which penalties, temperatures and the like change afterwards."""

    place = -1  # before penalties change them
    logits: Tensor

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.logits = scores
        return scores

    def probabilities(self, ids: Tensor, top: int) -> Iterator[tuple[float, tuple[tuple[int, float], ...]]]:
        """Log-probabilities of the written tokens, (batch_size,), and the `top` highest ones, row by row."""
        every = self.logits.float().log_softmax(-1).clamp(min=LOWEST)
        best = every.topk(min(top, every.shape[-1]), dim=-1)
        taken = every.gather(1, ids[:, None])[:, 0].tolist()
        for one, names, values in zip(taken, best.indices.tolist(), best.values.tolist(), strict=True):
            yield one, tuple(zip(names, values, strict=True))


class SeededDraw(LogitsProcessor):
    """Draws tokens by a generator of its own: other threads draw by PyTorch's, and other models that are served."""

    place = 1  # after temperature and top_p

    def __init__(self, seed: int, device: torch.device) -> None:
        self.generator = torch.Generator(device).manual_seed(seed)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Leave the drawn token of every row as the only one that is possible. *Shape:* (batch_size, vocab_size)."""
        drawn = scores.softmax(-1).multinomial(1, generator=self.generator)
        return torch.full_like(scores, -torch.inf).scatter(1, drawn, 0.0)


UNASSISTED = dict.fromkeys(("prompt_lookup_num_tokens", "assistant_early_exit", "use_mtp"))
"""Settings of speculative decoding, which writes the same: its steps have several tokens, and take one text only."""


class Follower(StoppingCriteria):
    """Follows generation step by step: hands on what is certain, and ends rows that are complete."""

    def __init__(
        self,
        texts: Sequence[GrowingText],
        emit: Callable[[Piece], object],
        stopped: Callable[[], bool],
        logits: LastLogits | None,
        top: int,
    ) -> None:
        self.texts, self.emit, self.stopped, self.logits, self.top = texts, emit, stopped, logits, top

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        """Take the last token of every row, and return which rows are complete. *Shape:* (batch_size,)."""
        last = input_ids[:, -1]
        rows = self.logits.probabilities(last, self.top) if self.logits else ((0.0, ()) for _ in self.texts)
        for text, token, (probability, top) in zip(self.texts, last.tolist(), rows, strict=True):
            piece = text.add(token, probability, top) if text.finish is None else None
            if piece is not None:
                self.emit(piece)
        done = [self.stopped() or text.finish is not None for text in self.texts]
        return torch.tensor(done, device=input_ids.device)


class ServedModel:
    """A model that works on one request at a time, called `name` by requests, by default its `source`'s folder."""

    def __init__(
        self,
        source: str | PreTrainedModel,
        *,
        tokenizer: TokenizerSource | None = None,
        name: str | None = None,
        device: str | None = None,
    ) -> None:
        model, tokenizers = load_checkpoint(source, tokenizer=tokenizer, device=device)
        if isinstance(model, WritingModel):
            raise ConfigError(f"{model.engine_name} hands on no token before a text is complete: serve the checkpoint")
        self.model: PreTrainedModel = model
        self.tokenizers: Tokenizers = tokenizers
        usual = (source, Path(source).resolve().name) if isinstance(source, str) else (model.config.variant,)
        self.names = (name,) if name else tuple(dict.fromkeys(usual))
        self._turn = Lock()

    @property
    def limit(self) -> int:
        """How many tokens the model reads, those that it writes included unless it has a decoder for them."""
        known = position_limit(self.model)
        trained: int = self.model.config.max_position_embeddings
        return trained if known is None else known

    def encode(self, prompts: Sequence[str | list[int]], param: str) -> list[Tensor]:
        """Ids of prompts, which are texts or ids."""
        size = self.model.config.vocab_size
        encoded = []
        for number, prompt in enumerate(prompts, start=1):
            if isinstance(prompt, str):
                try:
                    prompt = encode([prompt], self.tokenizers, self.model)[0].tolist()
                except SequenceTooLongError as error:
                    raise self.too_long(str(error).replace("text 1", f"{param} {number}"), param) from error
                except ZooError as error:
                    raise RefusedRequestError(str(error).replace("text 1", f"{param} {number}"), param) from error
            if max(prompt) >= size:
                raise RefusedRequestError(f"{param} {number} has id {max(prompt)}; valid are 0 to {size - 1}", param)
            if len(prompt) > self.limit:
                raise self.too_long(f"{param} {number} has {len(prompt)} tokens", param)
            encoded.append(torch.tensor(prompt))
        return encoded

    def chat_ids(self, messages: list[dict[str, str]]) -> Tensor:
        """Ids of messages by the tokenizer's template; RefusedRequestError if it has none or the template refuses."""
        tokenizer = self.tokenizers.source
        if not tokenizer.chat_template:
            reason = f"{self.names[0]} has no chat template, so it holds no conversations; ask /v1/completions"
            raise RefusedRequestError(reason, "messages")
        try:
            text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
        except (TemplateError, TypeError, ValueError) as error:
            raise RefusedRequestError(f"the chat template refuses the messages: {error}", "messages") from error
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        if not ids:
            raise RefusedRequestError("the chat template makes no text of the messages", "messages")
        return self.encode([list(ids)], "messages")[0]

    def room(self, prompts: Sequence[Tensor], asked: int | None, usual: int | None, param: str) -> int:
        """Tokens to write: `asked`, `usual`, or the positions left; RefusedRequestError if that is too many."""
        longest = 1 if self.model.config.is_encoder_decoder else max(map(len, prompts))
        left = self.limit - longest
        if left < 1 or (asked or 1) > left:
            rest = "none is left to write" if asked is None else f"{param} is {asked}"
            raise self.too_long(f"the prompt has {longest}, and {rest}", param)
        return asked or min(usual or left, left)

    def too_long(self, reason: str, param: str) -> RefusedRequestError:
        message = f"this model's maximum context length is {self.limit} tokens: {reason}"
        return RefusedRequestError(message, param, "context_length_exceeded")

    def check_writes(self) -> None:
        if not self.model.can_generate():
            name, kind = self.names[0], type(self.model).__name__
            reason = f"{name} is a {kind}, which writes nothing"
            if getattr(self.model.config, "masked_next_token", False):
                reason = f"{name} is served as a {kind}; save zoo.load(MODEL, task='causal-lm') to let it write"
            raise RefusedRequestError(reason, "model")

    @torch.no_grad()
    def write(self, job: Job, emit: Callable[[Piece], object], stopped: Callable[[], bool]) -> list[int]:
        model, tokenizer = self.model, self.tokenizers.target
        sampled = job.temperature >= COLDEST
        drawing = {"temperature": job.temperature, "top_p": job.top_p, "top_k": 0} if sampled else {}
        options = {"num_beams": 1, "num_return_sequences": 1, "max_new_tokens": job.max_tokens, "do_sample": sampled}
        settings = generation_config(model, tokenizer, {**options, **drawing, **UNASSISTED})
        own, settings.stop_strings = settings.stop_strings or [], None
        stops = [*job.stops, *([own] if isinstance(own, str) else own)]
        model, ends = with_settings(model, settings), settings.eos_token_id
        rows = [prompt for prompt in job.prompts for _ in range(job.each)]
        continued = [[] if model.config.is_encoder_decoder else prompt.tolist() for prompt in rows]
        known = {ends} if isinstance(ends, int) else set(ends or ())
        texts = [GrowingText(row, tokenizer, ids, known, stops) for row, ids in enumerate(continued)]
        logits = None if job.top is None else LastLogits()
        draw = SeededDraw(job.seed, model.device) if sampled and job.seed is not None else None
        processors = [processor for processor in (logits, draw) if processor is not None]
        with self._turn:
            if stopped():
                return [0] * len(texts)
            for places in batches_of([len(row) for row in rows], model, settings, len(rows)):
                ids, mask = pad([rows[place] for place in places], model)
                followed = [texts[place] for place in places]
                follower = Follower(followed, emit, stopped, logits, job.top or 0)
                steps = {"logits_processor": processors, "stopping_criteria": [follower]}
                with options_explained():  # those of the model's own settings
                    model.generate(input_ids=ids, attention_mask=mask, generation_config=settings, **steps)
        for text in texts:
            if text.finish is None:
                emit(text.end("length"))
        return [text.count for text in texts]

    def check_embeds(self) -> None:
        config, kind = self.model.config, type(self.model)
        if kind not in (ZooModel, ZooForMaskedLM) or config.is_decoder or config.is_encoder_decoder:
            raise RefusedRequestError(f"{self.names[0]} is a {kind.__name__}; embeddings are of encoders", "model")

    @torch.no_grad()
    def embed(self, inputs: Sequence[Tensor]) -> list[list[float]]:
        """Mean of a text's last hidden states, scaled to length 1. *Shape:* (batch_size, hidden_size)."""
        body = self.model.base_model
        found = []
        with self._turn:
            for start in range(0, len(inputs), EMBEDDED_AT_ONCE):
                ids, mask = pad(inputs[start : start + EMBEDDED_AT_ONCE], self.model)
                with fast_matmul(ids.device):
                    states = body(input_ids=ids, attention_mask=mask).last_hidden_state
                found += normalize(pool_mean(states, mask).float(), dim=-1).tolist()
        return found
