"""Runs a GGUF file in llama.cpp, with the `generate` of a model of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, ConfigError, InputError
from zoo.models import ZooConfig

from ..engine import ScoredText, WritingModel, Written, is_scored, unfollowed
from ..verification import ends_of
from .architectures import FILE
from .serving import Server


class GgufModel(WritingModel):
    """A file as a model of transformers that generates and scores, one text at a time."""

    engine_name = "llama.cpp"

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        self.context = config.max_position_embeddings
        try:
            self.server = Server(str(folder / FILE), self.context, torch.get_num_threads())
        except RuntimeError as error:
            raise CheckpointError(f"llama.cpp cannot load {folder / FILE}") from error

    def check_lengths(self, mask: Tensor) -> None:
        super().check_lengths(mask)
        self.refuse(int(mask.sum(1).max()))

    def refuse(self, length: int) -> None:
        """Raise InputError for more tokens than the server has room for, where positions may have no limit."""
        if length > self.context:
            raise InputError(f"llama.cpp holds a text and its continuation up to {self.context} tokens, not {length}")

    def write(self, input_ids: Tensor, mask: Tensor, settings: GenerationConfig) -> list[list[Written]]:
        """Let the server continue, greedily or by sampling."""
        request = self.request(settings)
        prompts = (ids[kept].tolist() for ids, kept in zip(input_ids, mask, strict=True))
        many = settings.num_return_sequences or 1
        return [[self.continued(prompt, request) for _ in range(many)] for prompt in prompts]

    def score(self, texts: list[ScoredText]) -> list[list[float]]:
        """Ask for an id at a time."""
        wholes = (([*text.prompt, *text.ids], len(text.prompt)) for text in texts)
        return [
            [self.server.log_probability(ids[:place], ids[place]) for place in range(start, len(ids))]
            for ids, start in wholes
        ]

    def request(self, settings: GenerationConfig) -> dict[str, Any]:
        foreign = unfollowed(settings)
        if settings.eos_token_id not in (None, self.config.eos_token_id, [self.config.eos_token_id]):
            foreign.append(f"eos_token_id={settings.eos_token_id}")
        if foreign:
            raise ConfigError(f"llama.cpp does not follow {', '.join(foreign)}; leave it out, or use another engine")
        if (settings.num_return_sequences or 1) > 1 and not settings.do_sample:
            raise ConfigError(
                f"num_return_sequences={settings.num_return_sequences} was given without do_sample=True: llama.cpp has "
                "no beams, and greedy outputs are all the same"
            )
        found = {
            "n_predict": settings.max_new_tokens,
            "n_probs": int(is_scored(settings)),
            "temperature": 0.0,
        }
        if settings.do_sample:
            # In the order in which transformers applies them.
            found |= {"samplers": ["temperature", "top_k", "top_p"], "top_k": settings.top_k or 0}
            found |= {"temperature": 1.0 if settings.temperature is None else settings.temperature}
            found |= {"top_p": 1.0 if settings.top_p is None else settings.top_p}
        return found

    def continued(self, prompt: list[int], request: dict[str, Any]) -> tuple[list[int], float]:
        seed = int(torch.randint(2**31, ())) if "samplers" in request else 0
        self.refuse(len(prompt) + 1)
        answer = self.server.complete(prompt, seed=seed, cache_prompt=False, **request)
        written = list(answer["tokens"])
        ends = ends_of(self.config)
        if answer["stop_type"] != "eos" and len(written) < request["n_predict"]:
            self.refuse(len(prompt) + request["n_predict"])
        if answer["stop_type"] == "eos" and not {*written[-1:]} & {*ends}:
            written += ends[:1]
        if not (request["n_probs"] and written):
            return written, 0.0
        values = [float(step["logprob"]) for step in self.server.scored_steps(answer)]
        for place in range(len(values), len(written)):
            values.append(self.server.log_probability([*prompt, *written[:place]], written[place]))
        return written, sum(values) / len(values)
