"""Runs a GGUF file in llama.cpp, with the `generate` of a model of transformers."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, ConfigError, InputError
from zoo.models import ZooConfig

from ..engine import ScoredText, WritingModel, Written, is_scored, refuse_foreign, unfollowed
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
        request = self.request(settings)
        prompts = (ids[kept].tolist() for ids, kept in zip(input_ids, mask, strict=True))
        ends = {*ends_of(self.config if settings.eos_token_id is None else settings)}
        many = settings.num_return_sequences or 1
        return [[self.continued(prompt, request, ends) for _ in range(many)] for prompt in prompts]

    def score(self, texts: list[ScoredText]) -> list[list[float]]:
        """Ask for an id at a time."""
        ask, wholes = self.server.log_probability, (([*text.prompt, *text.ids], len(text.prompt)) for text in texts)
        return [[ask(ids[:place], ids[place]) for place in range(start, len(ids))] for ids, start in wholes]

    def request(self, settings: GenerationConfig) -> dict[str, Any]:
        refuse_foreign(self.engine_name, unfollowed(settings))
        if (settings.num_return_sequences or 1) > 1 and not settings.do_sample:
            raise ConfigError(
                f"num_return_sequences={settings.num_return_sequences} was given without do_sample=True: llama.cpp has "
                "no beams, and greedy outputs are all the same"
            )
        found = {"n_predict": settings.max_new_tokens, "n_probs": int(is_scored(settings)), "temperature": 0.0}
        if settings.do_sample:
            # In the order in which transformers applies them.
            found |= {"samplers": ["temperature", "top_k", "top_p"], "top_k": settings.top_k or 0}
            found |= {"temperature": 1.0 if settings.temperature is None else settings.temperature}
            found |= {"top_p": 1.0 if settings.top_p is None else settings.top_p}
        return found

    def continued(self, prompt: list[int], request: dict[str, Any], ends: set[Any]) -> tuple[list[int], float]:
        """Continue a prompt up to an end. llama.cpp stops at tokens of some names too, and is asked again there."""
        written, values = list[int](), list[float]()
        most = request["n_predict"]
        while len(written) < most and not {*written[-1:]} & ends:
            before = [*prompt, *written]
            self.refuse(len(before) + 1)
            seed = int(torch.randint(2**31, ())) if "samplers" in request else 0
            asked = {**request, "n_predict": most - len(written)}
            answer = self.server.complete(before, seed=seed, cache_prompt=False, **asked)
            tokens = answer["tokens"]
            written += tokens[: next((place for place, token in enumerate(tokens, 1) if token in ends), None)]
            if request["n_probs"]:
                values += [float(step["logprob"]) for step in self.server.scored_steps(answer)]
                for place in range(len(values), len(written)):
                    values.append(self.server.log_probability([*prompt, *written[:place]], written[place]))
            if not tokens or (answer["stop_type"] != "eos" and len(tokens) < asked["n_predict"]):
                self.refuse(len(prompt) + most)
                break
        return written, fmean(values[: len(written)] or [0.0])
