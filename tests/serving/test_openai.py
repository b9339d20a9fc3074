"""The server, asked by OpenAI's own client; its answers against what the model computes in plain loops."""

from __future__ import annotations

import json
import math
import re
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch

import zoo
from zoo.base.errors import ConfigError
from zoo.converters.engine import WritingModel
from zoo.data.tokenizers import train_word

from .asked import CLASSIFIER, DECODER, ENCODER, PROMPT, TRANSLATOR, Asked, greedy, ids_of, openai

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.content }} {% endfor %}The"
)


@pytest.fixture(scope="module")
def decoder() -> Iterator[Asked]:
    with Asked(DECODER) as asked:
        yield asked


@pytest.fixture(scope="module")
def translator() -> Iterator[Asked]:
    with Asked(TRANSLATOR) as asked:
        yield asked


def test_a_completion_has_the_tokens_and_probabilities_of_a_plain_loop(decoder: Asked) -> None:
    answer = decoder.complete(PROMPT, max_tokens=24, logprobs=3)
    (choice,) = answer.choices
    prompt, tokenizer = ids_of(decoder, PROMPT), decoder.served.tokenizers.target
    ids, rows = greedy(decoder.served.model, prompt, 24)
    assert PROMPT + choice.text == tokenizer.decode(prompt + ids)
    assert choice.finish_reason == "length" and answer.object == "text_completion" and answer.model == decoder.name
    assert answer.usage.to_dict() == {"prompt_tokens": 9, "completion_tokens": 24, "total_tokens": 33}
    shown = choice.logprobs
    assert "".join(shown.tokens) == choice.text and shown.text_offset == list(range(9, 33))
    assert shown.token_logprobs == pytest.approx([float(row.max()) for row in rows], abs=1e-4)
    for row, best in zip(rows, shown.top_logprobs, strict=True):
        assert sorted(best.values(), reverse=True) == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
    assert len(decoder.complete(PROMPT).choices[0].text) == 16, "OpenAI's default"
    assert decoder.complete(prompt, max_tokens=24).choices[0].text == choice.text, "of ids"


def test_a_translation_ends_by_itself(translator: Asked) -> None:
    prompt = "The water is cold."
    answer = translator.complete(prompt, max_tokens=60, logprobs=0)
    assert answer.choices[0].text == "A água está fria." and answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs.text_offset[0] == len(prompt)


def test_an_engine_that_writes_whole_texts_is_not_served(tmp_path: Path) -> None:
    class Slow(WritingModel):
        engine_name = "Slow"

    model = Slow(zoo.config("gpt2-style@tiny"), tmp_path)
    with pytest.raises(ConfigError, match="Slow hands on no token before a text is complete"):
        Asked(model, train_word(["a b"]))


def test_prompts_and_choices_come_in_order_and_as_if_alone(decoder: Asked) -> None:
    prompts = [PROMPT, "A", "They went to the market and"]
    single = [decoder.complete(prompt, max_tokens=20) for prompt in prompts]
    alone = [answer.choices[0].text for answer in single]
    answer = decoder.complete(prompts, max_tokens=20, n=2)
    assert [choice.index for choice in answer.choices] == list(range(6))
    assert [choice.text for choice in answer.choices] == [text for text in alone for _ in range(2)]
    assert answer.usage.prompt_tokens == sum(map(len, prompts))
    assert answer.usage.completion_tokens == 2 * sum(one.usage.completion_tokens for one in single)
    drawn = {"temperature": 1.5, "seed": 7, "n": 4, "max_tokens": 20}
    first, second, third = (
        [choice.text for choice in decoder.complete(PROMPT, **{**drawn, "seed": seed}).choices] for seed in (7, 7, 8)
    )
    assert first == second != third and len(set(first)) > 1
    best = decoder.complete(PROMPT, max_tokens=20, temperature=1.0, top_p=0, seed=1).choices[0].text
    assert best == decoder.complete(PROMPT, max_tokens=20, temperature=1e-12).choices[0].text == alone[0]


@pytest.mark.parametrize("stop", ["s", [" the", "z"], "a stop that never comes", ["ster a", "r ar"]])
def test_a_stop_string_ends_the_text_and_is_no_part_of_it(decoder: Asked, stop: Any) -> None:
    full = decoder.complete(PROMPT, max_tokens=24).choices[0].text
    places = [full.find(one) for one in ([stop] if isinstance(stop, str) else stop) if one in full]
    for stream in (False, True):
        answer = decoder.complete(PROMPT, max_tokens=24, stop=stop, stream=stream, logprobs=0)
        choices = [chunk.choices[0] for chunk in answer] if stream else answer.choices
        assert "".join(choice.text for choice in choices) == full[: min(places, default=None)]
        assert "".join("".join(choice.logprobs.tokens) for choice in choices) == full[: min(places, default=None)]
        assert choices[-1].finish_reason == ("stop" if places else "length")


def test_a_stream_makes_up_the_completion(decoder: Asked) -> None:
    options: dict[str, Any] = {"max_tokens": 24, "n": 2, "temperature": 1.0, "seed": 3, "logprobs": 1}
    whole = decoder.complete([PROMPT, "A"], **options)
    chunks = list(decoder.complete([PROMPT, "A"], **options, stream=True, stream_options={"include_usage": True}))
    assert len({chunk.id for chunk in chunks}) == 1 and len(chunks) > 40
    assert chunks[-1].usage == whole.usage and chunks[-1].choices == []
    assert all(chunk.usage is None for chunk in chunks[:-1])
    for choice in whole.choices:
        pieces = [chunk.choices[0] for chunk in chunks[:-1] if chunk.choices[0].index == choice.index]
        assert "".join(piece.text for piece in pieces) == choice.text
        assert [token for piece in pieces for token in piece.logprobs.tokens] == choice.logprobs.tokens
        assert [piece.finish_reason for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
        assert pieces[-1].finish_reason == choice.finish_reason


def test_a_client_that_leaves_a_stream_frees_the_model(decoder: Asked) -> None:
    stream = decoder.complete(PROMPT, max_tokens=200, n=64, stream=True)
    next(iter(stream))
    stream.close()
    assert decoder.complete(PROMPT, max_tokens=2).choices[0].text


def test_a_failure_is_answered_and_the_next_request_too(decoder: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in (False, True):
        with monkeypatch.context() as broken:
            broken.setattr(decoder.served.model, "forward", None)
            with pytest.raises(openai.InternalServerError, match="the server failed: TypeError"):
                decoder.complete(PROMPT, stream=stream)
    assert decoder.complete(PROMPT, max_tokens=2).choices[0].text


def test_chats_need_a_template_and_follow_it(decoder: Asked) -> None:
    ask = decoder.client.chat.completions.create
    hello: Any = [{"role": "user", "content": [{"type": "text", "text": "He is here."}]}]
    with pytest.raises(openai.BadRequestError, match="has no chat template"):
        ask(model=decoder.name, messages=hello)
    tokenizer = decoder.served.tokenizers.source
    tokenizer.chat_template = TEMPLATE
    try:
        options: Any = {"model": decoder.name, "messages": hello, "temperature": 0, "max_completion_tokens": 12}
        answer = ask(**options, logprobs=True, top_logprobs=2)
        expected = decoder.complete("He is here. The", max_tokens=12).choices[0].text
        message = answer.choices[0].message
        assert (message.role, message.content, answer.choices[0].finish_reason) == ("assistant", expected, "length")
        shown = answer.choices[0].logprobs.content
        assert "".join(one.token for one in shown) == expected and all(len(one.top_logprobs) == 2 for one in shown)
        assert b"".join(bytes(one.bytes) for one in shown).decode() == expected
        with decoder.client.chat.completions.stream(**options) as events:
            pieces = [event.chunk.choices[0] for event in events if event.type == "chunk"]
            assert "".join(piece.delta.content or "" for piece in pieces) == expected
            assert (pieces[0].delta.role, pieces[-1].finish_reason) == ("assistant", "length")
        assert ask(**{**options, "max_completion_tokens": None}).choices[0].finish_reason == "stop"
        with pytest.raises(openai.BadRequestError, match="template refuses the messages: no system"):
            ask(**{**options, "messages": [{"role": "system", "content": "x"}]})
        for wrong in ({"role": "tool", "content": "x"}, {"role": "user", "content": [{"type": "image_url"}]}, {}):
            with pytest.raises(openai.BadRequestError, match=r"messages\.0"):
                ask(**{**options, "messages": [wrong]})
        others = [{"tools": [{"type": "function"}]}, {"response_format": {"type": "json_object"}}, {"max_tokens": 3}]
        for refused in others:
            with pytest.raises(openai.BadRequestError, match=next(iter(refused))):
                ask(**{**options, **refused})
    finally:
        tokenizer.chat_template = None


def test_embeddings_are_means_of_an_encoder_s_hidden_states() -> None:
    texts = ["The house is old.", "A", "They went to the market and came back."]
    with Asked(ENCODER) as asked:
        embed = asked.client.embeddings.create
        vectors = [one.embedding for one in embed(model=asked.name, input=texts).data]
        plain = [one.embedding for one in embed(model=asked.name, input=texts, encoding_format="float").data]
        tokenizer, body = asked.served.tokenizers.source, asked.served.model.base_model
        for text, vector, floats in zip(texts, vectors, plain, strict=True):
            with torch.no_grad():
                mean = body(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
            assert vector == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)
            assert vector == pytest.approx(floats, abs=1e-7)
        for wrong in ("", [], ["a", ""], "word " * 5000, [[]], [10**6]):
            with pytest.raises(openai.BadRequestError) as caught:
                embed(model=asked.name, input=wrong)
            assert caught.value.param == "input"
        with pytest.raises(openai.BadRequestError, match="writes nothing"):
            asked.complete("A")


def test_each_model_is_asked_for_what_it_does(decoder: Asked, translator: Asked) -> None:
    for asked in (decoder, translator):
        with pytest.raises(openai.BadRequestError, match="embeddings are of encoders"):
            asked.client.embeddings.create(model=asked.name, input="A")
    with Asked(CLASSIFIER) as asked, pytest.raises(openai.BadRequestError, match="writes nothing"):
        asked.complete("A")


def test_a_masked_language_model_that_can_write_is_refused_by_the_way_to_do_it() -> None:
    name = "gpt-bert-style.books"
    with Asked(name) as asked:
        assert len(asked.client.embeddings.create(model=name, input="A").data) == 1
        with pytest.raises(openai.BadRequestError, match="save zoo.load"):
            asked.complete("A")
    tokenizers = asked.served.tokenizers
    with Asked(zoo.load(name, task="causal-lm"), tokenizer=tokenizers) as asked:
        assert asked.complete("The house", max_tokens=4).choices[0].text


REFUSED = {
    "prompt": [[], [""] * 129, 3, None, {}, [["a"]], [3, "a"], [10**6], [10**30], [-1], "x" * 300],
    "max_tokens": [0, -1, 10**6, 10**30, "5", 1.5, True],
    "n": [0, 129, "a"],
    "temperature": [-0.1, 2.1, math.nan, math.inf, "hot"],
    "top_p": [-0.1, 1.1, math.nan],
    "logprobs": [-1, 6, math.nan],
    "stop": ["", ["a"] * 5, [1], 3],
    "seed": [2**70, 0.5],
    "stream": ["yes", 1],
    "stream_options": [{"include_usage": True}],
    "echo": [True],
    "suffix": ["."],
    "best_of": [2],
    "presence_penalty": [0.5, -0.5],
    "frequency_penalty": [math.nan],
    "logit_bias": [{"5": 1}],
    "top_k": [3],
    "model": [None, 3],
}


ONLY_NOTHING = {"presence_penalty": "0.0", "frequency_penalty": "0.0", "logit_bias": "{}"}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_valid_or_not_supported_is_refused_by_name(decoder: Asked, translator: Asked, name: str) -> None:
    for asked in (decoder, translator):
        for value in REFUSED[name]:
            body = {"model": asked.name, "prompt": "A", name: "A" * 3000 if value == "x" * 300 else value}
            status, answer = asked.raw("/v1/completions", json.dumps(body).encode())
            error = answer["error"]
            assert (status, error["type"], error["param"]) == (400, "invalid_request_error", name), (value, answer)
            assert name in error["message"]
            if name in ONLY_NOTHING and value == value:  # not NaN, which is no number for any field
                assert f"this value is not supported; valid: {ONLY_NOTHING[name]}" in error["message"]


def test_a_prompt_that_fills_the_context_leaves_no_token_to_write(decoder: Asked) -> None:
    with pytest.raises(openai.BadRequestError, match=f"the prompt has {decoder.served.limit}, and none is left"):
        decoder.complete([5] * decoder.served.limit)


BROKEN = [b"", b"{", b"[]", b"null", b'"a"', b"\xff\xfe", b'{"model": "\\ud800"}', b"[" * 100_000, b"{}"]


@pytest.mark.parametrize("place", ["/v1/completions", "/v1/chat/completions", "/v1/embeddings"])
def test_a_body_that_is_no_request_is_refused(decoder: Asked, place: str) -> None:
    for body in BROKEN:
        status, answer = decoder.raw(place, body)
        assert status == 400 and answer["error"]["type"] == "invalid_request_error", body
    assert decoder.raw(place, b"", "GET")[0] == 405


def test_models_are_listed_and_no_other_is_loaded(decoder: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", "/nonexistent")
    assert [model.id for model in decoder.client.models.list()] == [decoder.name]
    assert decoder.client.models.retrieve(decoder.name).id == decoder.name
    for other in (TRANSLATOR, "/etc", "org/name", "~"):
        for ask in (
            decoder.client.models.retrieve,
            lambda name: decoder.client.completions.create(model=name, prompt="A"),
        ):
            with pytest.raises(openai.NotFoundError) as caught:
                ask(other)
            assert caught.value.code == "model_not_found"
    for place in ("/load_model", "/v1/responses", "/", "/docs"):
        status, answer = decoder.raw(place, b"{}")
        assert status == 404 and "error" in answer
    with openai.OpenAI(base_url=f"http://{urlsplit(decoder.server.address).netloc}/v1", api_key="none") as stranger:
        with pytest.raises(openai.AuthenticationError, match="token"):
            stranger.models.list()
        assert stranger.with_options(api_key=decoder.server.token).models.list().data


def test_a_long_body_is_refused_and_not_kept(decoder: Asked) -> None:
    body = b'{"model": "' + decoder.name.encode() + b'", "prompt": "' + b"a" * 60_000_000 + b'"}'
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert decoder.raw("/v1/completions", body)[0] == 413
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown < 100_000, f"{grown} KiB"
    assert decoder.raw("/v1/completions", body[: 2**20 - 2] + b'"}')[0] == 400


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_prints_its_address_and_ends_at_ctrl_c() -> None:
    command = [sys.executable, "-m", "zoo.serving", DECODER, "--port", "0", "--name", "mine", "--device", "cpu"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        (address,) = re.findall(
            r"Serving mine at (http://127\.0\.0\.1:\d+/[\w-]{32}/v1) until", process.stdout.readline()
        )
        with openai.OpenAI(base_url=address, api_key="none") as client:
            assert client.completions.create(model="mine", prompt=PROMPT).choices[0].text
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0 and "Traceback" not in process.stderr.read()
