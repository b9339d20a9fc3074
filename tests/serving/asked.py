"""A server with one model for tests, and a plain loop that writes what it should."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from torch import Tensor
from transformers import PreTrainedModel

openai = pytest.importorskip("openai", reason="needs OpenAI's client")

DECODER, TRANSLATOR, ENCODER, CLASSIFIER = (
    "llama-style.char-en",
    "vanilla.en-pt",
    "nlpt-encoder.mlm-en",
    "vanilla.language",
)
PROMPT = "The house"


class Asked:
    """A server with one model, and OpenAI's client for it."""

    def __init__(self, source: Any, tokenizer: Any = None) -> None:
        from zoo.serving.app import build_app
        from zoo.serving.local import LocalServer
        from zoo.serving.served import ServedModel

        self.served = ServedModel(source, tokenizer=tokenizer)
        self.name = self.served.names[0]
        self.server = LocalServer(build_app(self.served), port=0)
        self.client = openai.OpenAI(base_url=f"{self.server.address}v1", api_key="none", max_retries=0)

    def __enter__(self) -> Asked:
        self.server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.client.close()
        self.server.__exit__(*error)

    def complete(self, prompt: Any, **options: Any) -> Any:
        return self.client.completions.create(model=self.name, prompt=prompt, **{"temperature": 0, **options})

    def raw(self, path: str, body: bytes, method: str = "POST") -> tuple[int, dict[str, Any]]:
        connection = HTTPConnection(urlsplit(self.server.address).netloc, timeout=60)
        try:
            headers = {"Authorization": f"Bearer {self.server.token}", "Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            connection.close()


@torch.no_grad()
def greedy(model: PreTrainedModel, prompt: list[int], steps: int) -> tuple[list[int], Tensor]:
    """Write token by token, each by a forward of the whole; with the log-probabilities of every step."""
    source, ids, rows = torch.tensor([prompt]), list(prompt), []
    begin = len(ids)
    if model.config.is_encoder_decoder:
        ids, begin = [model.config.decoder_start_token_id], 1
    for _ in range(steps):
        if model.config.is_encoder_decoder:
            logits = model(input_ids=source, decoder_input_ids=torch.tensor([ids]), use_cache=False).logits
        else:
            logits = model(input_ids=torch.tensor([ids]), use_cache=False).logits
        rows.append(logits[0, -1].float().log_softmax(-1))
        ids.append(int(rows[-1].argmax()))
        if ids[-1] == model.generation_config.eos_token_id:
            break
    return ids[begin:], torch.stack(rows)


def ids_of(asked: Asked, text: str) -> list[int]:
    return asked.served.encode([text], "prompt")[0].tolist()
