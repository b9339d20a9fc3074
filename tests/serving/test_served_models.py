"""The server with models of every kind: variants, tokenizers, and settings of their own."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from every_variant import ONE_TASK

import zoo
from zoo.converters import TARGETS
from zoo.converters.onnx.graphs import write_onnx
from zoo.data.tokenizers import Tokenizers, train_bpe, train_character, train_unigram, train_word

from .asked import Asked, greedy, ids_of, openai

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


@pytest.mark.parametrize("tail", [b"\xff", b" \xc3", b"\n\xff", b"ok\xff", b""])
@pytest.mark.parametrize("head", ["é", "日本", "a é\n", "b日\nc"])
def test_streamed_bytes_are_those_of_the_whole_text(head: str, tail: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Byte fallback decodes bytes in a row together: one that fits no letter makes all of them unreadable."""
    from tokenizers import Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    from zoo.cli.generate import streamer_to_stdout
    from zoo.serving.text import GrowingText

    names = [*(f"<0x{byte:02X}>" for byte in range(256)), *"abcok"]
    backend = Tokenizer(models.BPE({name: id for id, name in enumerate(names)}, [], byte_fallback=True))
    backend.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend)
    letters = {ord(name): id for id, name in enumerate(names) if len(name) == 1}
    ids = [letters.get(byte, byte) for byte in head.encode() + tail + b"a"]
    growing = GrowingText(0, tokenizer, (), (), ())
    pieces = [*map(growing.add, ids), growing.end("length")]
    assert "".join(piece.text for piece in pieces if piece is not None) == tokenizer.decode(ids)
    streamer = streamer_to_stdout(tokenizer)
    for one in [[3], *([id] for id in ids)]:
        streamer.put(torch.tensor(one))
    streamer.end()
    assert capsys.readouterr().out == tokenizer.decode(ids) + "\n"


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


def test_a_seed_draws_the_same_while_others_draw() -> None:
    """Other models that are served in the process, and threads that draw by PyTorch's own generator."""
    tokenizer = train_character(TEXTS)
    models = [zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(tokenizer), seed=seed) for seed in (1, 2)]
    one, other = (Asked(model, Tokenizers(tokenizer, tokenizer)) for model in models)
    given: dict[str, Any] = {"prompt": ["No way", "a"], "n": 2, "max_tokens": 12, "temperature": 1.5, "top_p": 0.9}

    def texts(asked: Asked) -> list[str]:
        return [choice.text for seed in range(3) for choice in asked.complete(**given, seed=seed).choices]

    with one, other, ThreadPoolExecutor(3) as threads:
        alone = [texts(one), texts(other)]
        drawing = threads.submit(lambda: [torch.rand(9) for _ in range(20_000)])
        found = list(threads.map(texts, (one, other)))
        drawing.result()
    assert found == alone


@pytest.mark.parametrize("engine", ["torch", pytest.param("onnx", marks=pytest.mark.nightly)])
def test_probabilities_are_the_models_own_before_scores_change(engine: str, tmp_path: Path) -> None:
    tokenizer = train_character(TEXTS)
    model = zoo.build("llama-style@tiny", vocab_size=len(tokenizer), num_hidden_layers=1, seed=1).eval()
    model.generation_config.repetition_penalty = 5.0
    served: Any = model
    if engine == "onnx":
        pytest.importorskip("onnxruntime")
        write_onnx(model, tmp_path)
        served = TARGETS.get("onnx").open(tmp_path)
    with Asked(served, Tokenizers(tokenizer, tokenizer)) as asked:
        (choice,) = asked.complete("a", max_tokens=8, logprobs=1).choices
        written = [one for token in choice.logprobs.tokens for one in ids_of(asked, token)]
        ids = torch.tensor([*ids_of(asked, "a"), *written])
    rows = model(input_ids=ids[None]).logits[0].log_softmax(-1)[-len(written) - 1 : -1]
    assert written != rows.argmax(-1).tolist(), "the penalty chose others"
    assert choice.logprobs.token_logprobs == pytest.approx(
        rows.gather(1, ids[-len(written) :, None])[:, 0].tolist(), abs=1e-5
    )
