"""Runs a GGUF file in llama.cpp, with the `generate` of a model of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, ConfigError
from zoo.models import ZooConfig

from ..engine import DEFAULT_LENGTH, ScoredText, WritingModel, Written, is_scored
from ..verification import ends_of
from .architectures import FILE
from .serving import Server

FOLLOWED = {
    *("do_sample", "temperature", "top_k", "top_p", "max_length", "max_new_tokens", "num_return_sequences"),
    *("pad_token_id", "bos_token_id", "eos_token_id", "return_dict_in_generate", "output_scores", "output_logits"),
    *("use_cache", "early_stopping", "transformers_version"),
}
"""Fields of a generation configuration that are followed, or that change nothing here."""


class GgufModel(WritingModel):
    """A file as a model of transformers that generates and scores, one text at a time."""

    engine_name = "llama.cpp"

    def __init__(self, config: ZooConfig, folder: Path) -> None:
        super().__init__(config, folder)
        try:
            self.server = Server(str(folder / FILE), config.max_position_embeddings, torch.get_num_threads())
        except RuntimeError as error:
            raise CheckpointError(f"llama.cpp cannot load {folder / FILE}") from error

    def write(self, input_ids: Tensor, mask: Tensor, settings: GenerationConfig) -> list[list[Written]]:
        """Let the server continue, greedily or by sampling."""
        request = self.request(settings, input_ids.shape[1])
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

    def request(self, settings: GenerationConfig, width: int) -> dict[str, Any]:
        given = {name for name, value in settings.to_diff_dict().items() if value and not name.startswith("_")}
        neutral = {name for name in given if getattr(settings, name) == getattr(GenerationConfig(), name, None)}
        foreign = sorted(given - neutral - FOLLOWED - ({"num_beams"} if settings.num_beams == 1 else set()))
        if settings.eos_token_id not in (None, self.config.eos_token_id, [self.config.eos_token_id]):
            foreign.append(f"eos_token_id={settings.eos_token_id}")
        if foreign:
            raise ConfigError(f"llama.cpp does not follow {', '.join(foreign)}; leave it out, or use another engine")
        most = settings.max_new_tokens
        found = {
            "n_predict": most if most is not None else (settings.max_length or DEFAULT_LENGTH) - width,
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
        answer = self.server.complete(prompt, seed=seed, cache_prompt=False, **request)
        written = list(answer["tokens"])
        ends = ends_of(self.config)
        if answer["stop_type"] == "eos" and written[-1:] != ends[:1]:
            written += ends[:1]
        if not (request["n_probs"] and written):
            return written, 0.0
        values = [float(step["logprob"]) for step in self.server.scored_steps(answer)]
        for place in range(len(values), len(written)):
            values.append(self.server.log_probability([*prompt, *written[:place]], written[place]))
        return written, sum(values) / len(values)
