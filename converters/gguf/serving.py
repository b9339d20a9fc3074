"""Runs a GGUF file in llama.cpp, by the server that xllamacpp starts on this machine. Imports nothing of the zoo.

Run as a script in its own process: `python -I serving.py REQUEST`, as llama.cpp ends the whole process on unexpected
input.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Sequence
from itertools import takewhile
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

EVERY = 1_000_000  # More log-probabilities than any vocabulary has, to ask for all
FORCED = 1e4  # Added to a token's logit to force it; the probabilities that the server reports are without it


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
        body = json.dumps(request).encode()
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self._key}"}
        asked = Request(self._server.listening_address + place, body, headers)
        try:
            with self._opener.open(asked) as answer:
                return dict(json.load(answer))
        except HTTPError as error:
            raise RuntimeError(f"llama.cpp refused: {error.read().decode(errors='replace')}") from error

    def complete(self, ids: Sequence[int], **options: Any) -> dict[str, Any]:
        return self.ask("/completion", prompt=list(ids), return_tokens=True, **options)

    def tokenize(self, text: str) -> list[int]:
        return list(self.ask("/tokenize", content=text, add_special=True, parse_special=True)["tokens"])

    def expected(self, ids: Sequence[int], most: int) -> dict[int, float]:
        # The server reports probabilities of whole characters only, so it is forced to take one.
        whole = [*ids[:1], *self.tokenize("a")][-1]  # without a tokenizer, every token has a name of whole letters
        forced = {"logit_bias": [[whole, FORCED]], "temperature": 0.0, "n_predict": 1}
        answer = self.complete(ids, n_probs=most, cache_prompt=True, ignore_eos=True, **forced)
        return {top["id"]: top["logprob"] for top in answer["completion_probabilities"][0]["top_logprobs"]}

    def log_probability(self, ids: Sequence[int], token: int) -> float:
        """Log-probability of a token after others; their keys and values are kept for further questions."""
        forced = {"logit_bias": [[token, FORCED]], "temperature": 0.0, "n_predict": 1}
        answer = self.complete(ids, n_probs=1, cache_prompt=True, ignore_eos=True, **forced)
        steps = answer.get("completion_probabilities") or [{"id": None}]
        return float(steps[0]["logprob"] if steps[0]["id"] == token else self.expected(ids, EVERY)[token])

    def scored_steps(self, answer: dict[str, Any]) -> list[dict[str, Any]]:
        """Completion steps with log-probabilities, up to the first token that ends inside a UTF-8 character."""
        steps = zip(answer["tokens"], answer.get("completion_probabilities", ()), strict=False)
        return [step for token, step in takewhile(lambda pair: pair[0] == pair[1]["id"], steps)]


def measure(server: Server, request: dict[str, Any]) -> dict[str, Any]:
    """Let llama.cpp compute.

    Args:
        request: `prompts` (ids), `new_tokens`, `most` (how many log-probabilities a step), `texts`, `text` (ids,
            each to be predicted from those before it).

    Returns:
        `steps`: for every prompt and token the id that was taken, and log-probabilities by id; `ids` of the texts;
        `expected`: a log-probability for every id of the text but the first.
    """
    steps = []
    for prompt in request["prompts"]:
        options = {"n_predict": request["new_tokens"], "n_probs": request["most"], "temperature": 0.0}
        found = server.scored_steps(server.complete(prompt, cache_prompt=False, ignore_eos=False, **options))
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
    with open(path, encoding="utf-8") as file:
        jobs = json.load(file)["jobs"]
    for job in jobs:
        found = measure(Server(job["file"], job["context"], 1), job)
        with open(job["results"], "w", encoding="utf-8") as results:
            json.dump(found, results)


if __name__ == "__main__":
    main(sys.argv[1])
