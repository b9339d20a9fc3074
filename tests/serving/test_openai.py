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
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from every_variant import ONE_TASK
from torch import Tensor
from transformers import PreTrainedModel

import zoo
from zoo.base.errors import ConfigError
from zoo.converters.engine import WritingModel
from zoo.data.tokenizers import Tokenizers, train_bpe, train_character, train_unigram, train_word

openai = pytest.importorskip("openai", reason="needs OpenAI's client")

DECODER, TRANSLATOR, ENCODER, CLASSIFIER = (
    "llama-style.char-en",
    "vanilla.en-pt",
    "nlpt-encoder.mlm-en",
    "vanilla.language",
)
PROMPT = "The house"
TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
    "{{ m.content }} {% endfor %}The"
)


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


@pytest.fixture(scope="module")
def decoder() -> Iterator[Asked]:
    with Asked(DECODER) as asked:
        yield asked


@pytest.fixture(scope="module")
def translator() -> Iterator[Asked]:
    with Asked(TRANSLATOR) as asked:
        yield asked


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


def test_a_completion_has_the_tokens_and_probabilities_of_a_plain_loop(decoder: Asked) -> None:
    answer = decoder.complete(PROMPT, max_tokens=24, logprobs=3)
    (choice,) = answer.choices
    prompt, tokenizer = ids_of(decoder, PROMPT), decoder.served.tokenizers.target
    ids, rows = greedy(decoder.served.model, prompt, 24)
    assert PROMPT + choice.text == tokenizer.decode(prompt + ids)
    assert choice.finish_reason == "length" and answer.object == "text_completion" and answer.model == decoder.name
    assert answer.usage.to_dict() == {"prompt_tokens": 9, "completion_tokens": 24, "total_tokens": 33}
    reported = choice.logprobs
    assert "".join(reported.tokens) == choice.text and reported.text_offset == list(range(9, 33))
    assert reported.token_logprobs == pytest.approx([float(row.max()) for row in rows], abs=1e-4)
    for row, best in zip(rows, reported.top_logprobs, strict=True):
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
        reported = answer.choices[0].logprobs.content
        assert "".join(one.token for one in reported) == expected and all(
            len(one.top_logprobs) == 2 for one in reported
        )
        assert b"".join(bytes(one.bytes) for one in reported).decode() == expected
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
        for refused in ({"tools": [{"type": "function"}]}, {"response_format": {"type": "json_object"}}):
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
    "echo": [True],
    "suffix": ["."],
    "best_of": [2],
    "presence_penalty": [0.5, -0.5],
    "frequency_penalty": [math.nan],
    "logit_bias": [{"5": 1}],
    "top_k": [3],
    "model": [None, 3],
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_valid_or_not_supported_is_refused_by_name(decoder: Asked, translator: Asked, name: str) -> None:
    from zoo.serving.requests import NOT_SUPPORTED

    for asked in (decoder, translator):
        for value in REFUSED[name]:
            body = {"model": asked.name, "prompt": "A", name: "A" * 3000 if value == "x" * 300 else value}
            status, answer = asked.raw("/v1/completions", json.dumps(body).encode())
            error = answer["error"]
            assert (status, error["type"], error["param"]) == (400, "invalid_request_error", name), (value, answer)
            assert name in error["message"]
            assert name not in NOT_SUPPORTED or "this value is not supported" in error["message"]


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


TEXTS = ["Don't go; it's 'fine', isn't it? No way.", "Não há água fria, 日本 😀 ok.", "a  b\n\nc 'd' e's ."]


@pytest.mark.parametrize("train", [train_bpe, train_character, train_unigram, train_word])
def test_pieces_and_tokens_make_up_the_text_with_every_tokenizer(train: Any) -> None:
    from zoo.serving.text import GrowingText, token_text

    tokenizer = train(TEXTS * 20)
    for text in TEXTS:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        whole = [cut for cut in range(len(ids)) if not tokenizer.decode(ids[:cut]).endswith("\ufffd")]
        for cut in whole:
            growing = GrowingText(0, tokenizer, ids[:cut], (), ())
            pieces = [growing.add(one) for one in ids[cut:]]
            pieces.append(growing.end("length"))
            written = "".join(piece.text for piece in pieces if piece is not None)
            assert tokenizer.decode(ids[:cut]) + written == tokenizer.decode(ids), (text, cut)
            tokens = [token.id for piece in pieces if piece for token in piece.tokens]
            assert tokens == ids[cut:]
            names = [token_text(tokenizer, one) for one in tokens]
            assert "\ufffd" in "".join(names) or "".join(names).strip() == written.strip()


GENERATIVE = {pair for pair in ONE_TASK.items() if pair[1] != "masked-lm"}
DAILY = {("llama-style", "causal-lm"), ("qwen3-next-style", "causal-lm"), ("t5-style", "seq2seq-lm")}


@pytest.mark.parametrize(
    ("name", "task"),
    [pytest.param(*pair, marks=() if pair in DAILY else pytest.mark.nightly) for pair in sorted(GENERATIVE)],
)
def test_every_generative_variant_is_served_as_it_computes(name: str, task: str) -> None:
    """Rows of unlike lengths, by the tokens and probabilities of a plain loop over each alone, in float64."""
    tokenizer = train_character(TEXTS)
    model = zoo.build(f"{name}@tiny", task, vocab_size=len(tokenizer), dtype="float64", seed=1)
    prompts = ["No way", "a", "it's fine, isn't it"]
    with Asked(model, Tokenizers(tokenizer, tokenizer)) as asked:
        answer = asked.complete(prompts, max_tokens=8, logprobs=1)
        for prompt, choice in zip(prompts, answer.choices, strict=True):
            ids, rows = greedy(model, ids_of(asked, prompt), 8)
            ended = model.generation_config.eos_token_id in ids
            chosen = [float(row.max()) for row in rows][: len(ids) - ended]
            assert choice.logprobs.token_logprobs == pytest.approx(chosen, abs=1e-5)
            assert choice.finish_reason == ("stop" if ended else "length")


def test_settings_of_the_model_change_no_prompt_by_another() -> None:
    """Padding, which is a letter of the texts here, is no repetition; strings of the model stop each output."""
    tokenizer = train_character(TEXTS)
    model = zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(tokenizer), seed=1).eval()
    model.generation_config.no_repeat_ngram_size = 1
    prompts = ["No way", "a", "it's fine"]
    with Asked(model, Tokenizers(tokenizer, tokenizer)) as asked:
        letter = asked.complete("a", max_tokens=8).choices[0].text[0]
        (model.config.pad_token_id,) = ids_of(asked, letter)
        for stop in (None, letter):
            model.generation_config.stop_strings = stop
            together = [choice.text for choice in asked.complete(prompts, max_tokens=8).choices]
            assert together == [asked.complete(prompt, max_tokens=8).choices[0].text for prompt in prompts]
        assert not any(letter in text for text in together)


def test_speculative_decoding_of_the_model_s_own_settings_changes_no_answer() -> None:
    """Its steps have several tokens at a time, and it takes one text."""
    tokenizer = train_character(TEXTS)
    model = zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(tokenizer), seed=1).eval()
    with Asked(model, Tokenizers(tokenizer, tokenizer)) as asked:
        given: dict[str, Any] = {"prompt": ["No way", "it's fine"], "max_tokens": 12, "logprobs": 1}
        expected = asked.complete(**given).choices
        model.generation_config.prompt_lookup_num_tokens = 3
        assert asked.complete(**given).choices == expected
        assert asked.complete("No way", max_tokens=12).choices[0].text == expected[0].text


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"penalty_alpha": 0.6, "top_k": 4}, "Contrastive Search"),
        ({"dola_layers": "low"}, "Dola Generation"),
        ({"force_words_ids": [[5]]}, "Constrained Beam Search"),
        ({"token_healing": True}, "tokenizer"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_settings_of_the_model_that_cannot_be_followed_are_named(settings: dict[str, Any], named: str) -> None:
    tokenizer = train_character(TEXTS)
    model = zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(tokenizer), seed=1).eval()
    model.generation_config.update(**settings)
    refused = pytest.raises(openai.BadRequestError, match=f"generation options are not valid: .*{named}")
    with Asked(model, Tokenizers(tokenizer, tokenizer)) as asked, refused:
        asked.complete("a", max_tokens=4)


def test_probabilities_are_the_models_own_whatever_changes_scores() -> None:
    tokenizer = train_character(TEXTS)
    model = zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(tokenizer), seed=1).eval()
    model.generation_config.repetition_penalty = 5.0
    with Asked(model, Tokenizers(tokenizer, tokenizer)) as asked:
        (choice,) = asked.complete("a", max_tokens=8, logprobs=1).choices
        written = [one for token in choice.logprobs.tokens for one in ids_of(asked, token)]
        ids = torch.tensor([*ids_of(asked, "a"), *written])
    rows = model(input_ids=ids[None]).logits[0].log_softmax(-1)[-len(written) - 1 : -1]
    assert written != rows.argmax(-1).tolist(), "the penalty chose others"
    assert choice.logprobs.token_logprobs == pytest.approx(
        rows.gather(1, ids[-len(written) :, None])[:, 0].tolist(), abs=1e-5
    )


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
