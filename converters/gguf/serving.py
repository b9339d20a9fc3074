"""llama.cpp: its server, and `generate` of a model of transformers on it."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import torch
from torch import Tensor
from transformers import GenerationConfig

from zoo.base.errors import CheckpointError, ConfigError
from zoo.models import ZooConfig

from ..engine import DEFAULT_LENGTH, Said, WritingModel, Written
from ..verification import ends_of
from .architecture import FILE

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
        """Let the server continue, greedily or by sampling. Arguments and result as in the base class."""
        request = self.request(settings, input_ids.shape[1])
        prompts = (ids[kept].tolist() for ids, kept in zip(input_ids, mask, strict=True))
        many = settings.num_return_sequences or 1
        return [[self.continued(prompt, request) for _ in range(many)] for prompt in prompts]

    def score(self, texts: list[Said]) -> list[list[float]]:
        """Ask for an id at a time. Arguments and result as in the base class."""
        wholes = (([*text.prompt, *text.ids], len(text.prompt)) for text in texts)
        return [
            [self.server.log_probability(ids[:place], ids[place]) for place in range(start, len(ids))]
            for ids, start in wholes
        ]

    def request(self, settings: GenerationConfig, width: int) -> dict[str, Any]:
        """Translate generation settings."""
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
            "n_probs": int(bool(settings.output_scores or settings.output_logits)),
            "temperature": 0.0,
        }
        if settings.do_sample:
            # In the order in which transformers applies them.
            found |= {"samplers": ["temperature", "top_k", "top_p"], "top_k": settings.top_k or 0}
            found |= {"temperature": 1.0 if settings.temperature is None else settings.temperature}
            found |= {"top_p": 1.0 if settings.top_p is None else settings.top_p}
        return found

    def continued(self, prompt: list[int], request: dict[str, Any]) -> tuple[list[int], float]:
        """Continue a prompt."""
        seed = int(torch.randint(2**31, ())) if "samplers" in request else 0
        answer = self.server.complete(prompt, seed=seed, cache_prompt=False, **request)
        written = list(answer["tokens"])
        ends = ends_of(self.config)
        if answer["stop_type"] == "eos" and written[-1:] != ends[:1]:
            written += ends[:1]
        if not (request["n_probs"] and written):
            return written, 0.0
        values = [float(step["logprob"]) for step in self.server.told(answer)]
        for place in range(len(values), len(written)):
            values.append(self.server.log_probability([*prompt, *written[:place]], written[place]))
        return written, sum(values) / len(values)


EVERY = 1_000_000
"""More log-probabilities than there are, to ask for all."""

FORCED = 1e4
"""Added to a token's logit to force it; the probabilities that the server reports are without it."""


class Server:
    """A GGUF file in llama.cpp, with keys and values in float32 and one text at a time."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        # Where it ends the process, it would have a debugger print every thread first.
        os.environ.setdefault("GGML_NO_BACKTRACE", "1")
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path = path
        params.n_ctx, params.n_parallel, params.n_gpu_layers = context, 1, 0
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
        params.warmup = params.fit_params = params.ctx_shift = False
        params.verbosity = 0
        self._key = secrets.token_urlsafe()  # other processes and pages in a browser reach the port, too
        params.api_keys = [self._key]
        self._server = xllamacpp.Server(params)
        self._opener = build_opener(ProxyHandler({}))

    def ask(self, place: str, **request: Any) -> dict[str, Any]:
        """Ask the server."""
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        asked = Request(self._server.listening_address + place, body, headers)
        try:
            with self._opener.open(asked) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            raise RuntimeError(f"llama.cpp refused: {error.read().decode(errors='replace')}") from error

    def complete(self, ids: Sequence[int], **options: Any) -> dict[str, Any]:
        """Continue a prompt."""
        return self.ask("/completion", prompt=list(ids), return_tokens=True, **options)

    def tokenize(self, text: str) -> list[int]:
        """Tokenize a prompt."""
        return list(self.ask("/tokenize", content=text, add_special=True, parse_special=True)["tokens"])

    def expected(self, ids: Sequence[int], most: int) -> dict[int, float]:
        """The largest log-probabilities after a prompt."""
        # The server reports probabilities of whole characters only, so it is forced to take one.
        whole = [*ids[:1], *self.tokenize("a")][-1]  # without a tokenizer, every token has a name of whole letters
        forced = {"logit_bias": [[whole, FORCED]], "temperature": 0.0, "n_predict": 1}
        answer = self.complete(ids, n_probs=most, cache_prompt=True, ignore_eos=True, **forced)
        return {top["id"]: top["logprob"] for top in answer["completion_probabilities"][0]["top_logprobs"]}

    def log_probability(self, ids: Sequence[int], token: int) -> float:
        """Log-probability of a token after others; their keys and values are kept for further questions."""
        forced = {"logit_bias": [[token, FORCED]], "temperature": 0.0, "n_predict": 1}
        answer = self.complete(ids, n_probs=1, cache_prompt=True, ignore_eos=True, **forced)
        told = answer.get("completion_probabilities") or [{"id": None}]
        return float(told[0]["logprob"] if told[0]["id"] == token else self.expected(ids, EVERY)[token])

    def told(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """Completion steps with log-probabilities, up to the first token that ends inside a UTF-8 character."""
        steps = zip(answer["tokens"], answer.get("completion_probabilities", ()), strict=False)
        return [step for token, step in takewhile(lambda pair: pair[0] == pair[1]["id"], steps)]


def measure(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Let llama.cpp compute.

    Args:
        request: `prompts` (ids), `new_tokens`, `most` (how many log-probabilities a step), `texts`, `text` (ids, of
            which each has to be expected after those before it).

    Returns:
        `steps`: for every prompt and token the id that was taken, and log-probabilities by id; `ids` of the texts;
        `expected`: a log-probability for every id of the text but the first.
    """
    steps = []
    for prompt in request["prompts"]:
        options = {"n_predict": request["new_tokens"], "n_probs": request["most"], "temperature": 0.0}
        found = server.told(server.complete(prompt, cache_prompt=False, ignore_eos=False, **options))
        step = [[one["id"], {top["id"]: top["logprob"] for top in one["top_logprobs"]}] for one in found]
        if not step:  # it begins with an end, or with a part of a letter
            likely = server.expected(prompt, request["most"])
            step = [[next(iter(likely)), likely]]
        steps.append(step)
    text = request["text"]
    return {
        "steps": steps,
        "ids": [server.tokenize(text) for text in request["texts"]],
        "expected": [server.log_probability(text[:place], text[place]) for place in range(1, len(text))],
    }


def main(path: str) -> None:
    """Run the jobs of a request file."""
    with open(path, encoding="utf-8") as file:
        jobs = json.load(file)["jobs"]
    for job in jobs:
        found = measure(Server(job["file"], job["context"], 1), job)
        with open(job["results"], "w", encoding="utf-8") as results:
            json.dump(found, results)


if __name__ == "__main__":
    main(sys.argv[1])
