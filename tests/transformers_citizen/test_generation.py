"""Everything that `generate` does, on every family."""

from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    TextIteratorStreamer,
    WatermarkingConfig,
)
from transformers_citizen.support import EVERY_GENERATIVE, GENERATIVE, enough_over, over, prompt, single, tiny

import zoo
import zoo.base.errors

DECODERS = tuple(pair for pair in GENERATIVE if pair[1] == "causal-lm")
WRITERS = tuple(pair for pair in GENERATIVE if pair[1] == "seq2seq-lm")
LENGTH = dict(max_new_tokens=6, min_new_tokens=6)


class OddOnly(LogitsProcessor):
    """Allows odd token ids only."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        scores = scores.clone()
        scores[:, ::2] = -torch.inf
        return scores


@enough_over(EVERY_GENERATIVE)
def test_assisted_decoding_equals_greedy(pair):
    subject = tiny(pair)
    assistant = subject.copy()
    with torch.no_grad():  # an assistant that is mostly right, and sometimes wrong
        assistant.lm_head.weight.add_(0.05 * torch.randn(assistant.lm_head.weight.shape))
    inputs = {name: ids[:1] for name, ids in prompt(subject).items()}
    if subject.model._is_stateful:  # what was guessed wrong cannot be taken out of a state
        with pytest.raises(ValueError, match="not supported with stateful models"):
            subject.model.generate(**inputs, **LENGTH, do_sample=False, assistant_model=assistant)
        return
    greedy = subject.model.generate(**inputs, **LENGTH, do_sample=False)
    assisted = subject.model.generate(**inputs, **LENGTH, do_sample=False, assistant_model=assistant)
    assert assisted.tolist() == greedy.tolist()


@over((("gemma2-style", "causal-lm"), ("llama-style", "causal-lm")))
def test_an_early_exit_as_assistant_equals_greedy(pair):
    subject = tiny(pair)
    model, inputs = subject.copy(), {name: ids[:1] for name, ids in prompt(subject).items()}
    greedy = subject.model.generate(**inputs, **LENGTH, do_sample=False)
    assert model.generate(**inputs, **LENGTH, do_sample=False, assistant_early_exit=1).tolist() == greedy.tolist()
    torch.testing.assert_close(subject.run(model), subject.run())


def test_a_mask_that_was_not_given_is_named_as_the_variants_own():
    model = single(("vanilla+masks-from-token-ids", "seq2seq-lm"))
    with pytest.raises(zoo.base.errors.InputError, match=r"made of the token ids, covers 1 positions.*use_cache=False"):
        model.generate(**prompt(tiny(("vanilla", "seq2seq-lm"))), max_new_tokens=3, use_cache=True)


@over(GENERATIVE)
def test_prompt_lookup_equals_greedy(pair):
    subject = tiny(pair)
    inputs = {"input_ids": prompt(subject)["input_ids"][:1].repeat(1, 2)}
    if subject.stack == "encoder-decoder":  # the last target ids are no source ids
        size = subject.target_vocabulary
        inputs["decoder_input_ids"] = torch.tensor([[1, *range(size - 4, size), *range(size - 4, size)]])
    greedy = subject.model.generate(**inputs, **LENGTH, do_sample=False)
    assert subject.model.generate(**inputs, **LENGTH, prompt_lookup_num_tokens=2).tolist() == greedy.tolist()


@over(GENERATIVE)
@pytest.mark.parametrize("num_beams", [1, 2])
def test_scores_of_written_tokens_are_log_probabilities(pair, num_beams):
    """Of the target's vocabulary, which need not have the size of the source's."""
    subject = tiny(pair)
    options = dict(output_scores=True, return_dict_in_generate=True, num_beams=num_beams)
    found = subject.model.generate(**prompt(subject), **LENGTH, **options)
    beams = {"beam_indices": found.beam_indices} if num_beams > 1 else {"normalize_logits": True}
    scores = subject.model.compute_transition_scores(found.sequences, found.scores, **beams)
    rows = found.beam_indices if num_beams > 1 else torch.arange(len(scores))[:, None].expand_as(scores)
    tokens = found.sequences[:, -scores.shape[1] :]
    for step, logits in enumerate(found.scores):
        expected = logits if num_beams > 1 else logits.log_softmax(-1)
        torch.testing.assert_close(scores[:, step], expected[rows[:, step], tokens[:, step]])


@over(WRITERS)
def test_a_watermark_is_in_the_vocabulary_of_the_target(pair):
    subject, watermark = tiny(pair), WatermarkingConfig(bias=1e3)
    green = watermark.construct_processor(subject.target_vocabulary, "cpu")
    for row in subject.model.generate(**prompt(subject), **LENGTH, watermarking_config=watermark):
        assert all(row[place] in green._get_greenlist_ids(row[:place]) for place in range(1, len(row)))


@over(WRITERS)
@pytest.mark.parametrize(
    ("option", "value"), [("encoder_repetition_penalty", 2.0), ("encoder_no_repeat_ngram_size", 2)]
)
def test_target_ids_are_looked_for_in_the_source_only_where_they_are_the_same(pair, option, value):
    subject = tiny(pair)
    if subject.target_vocabulary == subject.config.vocab_size:
        subject.model.generate(**prompt(subject), **LENGTH, **{option: value})
        return
    with pytest.raises(zoo.base.errors.UnsupportedOperationError, match=f"{option}={value} was given.*leave it out"):
        subject.model.generate(**prompt(subject), **LENGTH, **{option: value})


@over(GENERATIVE)
@pytest.mark.parametrize("settings", [dict(), dict(do_sample=True), dict(num_beams=3)], ids=str)
def test_logits_processors_are_obeyed(pair, settings):
    subject = tiny(pair)
    inputs = prompt(subject)
    processors = LogitsProcessorList([OddOnly()])
    generated = subject.model.generate(**inputs, max_new_tokens=4, logits_processor=processors, **settings)
    new = generated[:, inputs["input_ids"].shape[1] if subject.stack == "decoder" else 1 :]
    assert all(token % 2 == 1 for row in new.tolist() for token in row if token != subject.config.pad_token_id)


@over(GENERATIVE)
def test_words_can_be_forbidden(pair):
    subject = tiny(pair)
    usual = subject.model.generate(**prompt(subject), **LENGTH)
    word = int(usual[0, -1])
    assert word not in subject.model.generate(**prompt(subject), **LENGTH, bad_words_ids=[[word]])[:, 5:]


@over(DECODERS)
def test_embeddings_can_be_the_prompt(pair):
    subject = tiny(pair)
    ids = prompt(subject)["input_ids"]
    from_ids = subject.model.generate(input_ids=ids, **LENGTH)[:, ids.shape[1] :]
    embeds = subject.model.get_input_embeddings()(ids)
    assert subject.model.generate(inputs_embeds=embeds, **LENGTH).tolist() == from_ids.tolist()


@over(WRITERS)
def test_source_embeddings_can_be_the_input(pair):
    subject = tiny(pair)
    ids = prompt(subject)["input_ids"]
    embeds = subject.model.get_input_embeddings()(ids)
    assert (
        subject.model.generate(inputs_embeds=embeds, **LENGTH).tolist()
        == subject.model.generate(input_ids=ids, **LENGTH).tolist()
    )


@over(GENERATIVE)
@pytest.mark.parametrize(
    "settings",
    [
        dict(),
        dict(num_beams=3),
        dict(num_beams=3, num_return_sequences=2),
        dict(num_beams=3, do_sample=True),
        dict(do_sample=True, num_return_sequences=3),
    ],
    ids=str,
)
def test_every_output_of_every_step_has_a_row_for_every_beam(pair, settings):
    subject = tiny(pair)
    inputs = prompt(subject)
    batch_size, read = inputs["input_ids"].shape
    asked = ("scores", "logits", "attentions", "hidden_states")
    outputs = subject.model.generate(
        **inputs,
        **LENGTH,
        **settings,
        use_cache=True,
        return_dict_in_generate=True,
        **{f"output_{name}": True for name in asked},
    )
    decoder = subject.config.get_text_config(decoder=True)
    sequences = settings.get("num_return_sequences", 1)
    rows, heads = batch_size * settings.get("num_beams", sequences), decoder.num_attention_heads
    steps, depth = LENGTH["max_new_tokens"], decoder.num_hidden_layers

    def shapes_of(nested: Any) -> list[list[tuple[int, ...]]]:
        return [[tuple(one.shape) for one in step] for step in nested]

    assert [len(scores) for scores in (*outputs.scores, *outputs.logits)] == [rows] * 2 * steps
    if subject.stack == "decoder":
        assert outputs.sequences.shape == (batch_size * sequences, read + steps)
        assert [len(step) for step in outputs.attentions] == [depth] * steps
        assert [len(step) for step in outputs.hidden_states] == [depth + 1] * steps
        return
    assert outputs.sequences.shape == (batch_size * sequences, steps + 1)
    assert len(outputs.encoder_attentions) == subject.config.num_hidden_layers
    assert shapes_of(outputs.cross_attentions) == [[(rows, heads, 1, read)] * depth] * steps
    assert shapes_of(outputs.decoder_attentions) == [[(rows, heads, 1, step + 1)] * depth for step in range(steps)]
    assert shapes_of(outputs.decoder_hidden_states) == [[(rows, 1, decoder.hidden_size)] * (depth + 1)] * steps
    cache, width = outputs.past_key_values, decoder.hidden_size // heads
    for part, length in ((cache.self_attention_cache, steps), (cache.cross_attention_cache, read)):
        assert shapes_of((layer.keys, layer.values) for layer in part.layers) == (
            [[(rows, decoder.num_key_value_heads, length, width)] * 2] * depth
        )


class Letters:
    """As much of a tokenizer as a streamer needs."""

    def decode(self, ids: list[int], **_: Any) -> str:
        return "".join(chr(ord("a") + int(token) % 26) for token in ids)


@over(GENERATIVE)
def test_text_is_streamed_while_it_is_generated(pair):
    subject = tiny(pair)
    inputs = {name: ids[:1] for name, ids in prompt(subject).items()}
    is_decoder = subject.stack == "decoder"
    streamer = TextIteratorStreamer(Letters(), skip_prompt=is_decoder, timeout=30)
    thread = Thread(target=subject.model.generate, kwargs=dict(**inputs, **LENGTH, streamer=streamer))
    thread.start()
    text = "".join(streamer)
    thread.join()
    generated = subject.model.generate(**inputs, **LENGTH)[0]
    assert text == Letters().decode(generated[inputs["input_ids"].shape[1] if is_decoder else 0 :].tolist())


@over(GENERATIVE)
def test_a_generation_config_is_saved_with_the_model(pair, tmp_path: Path):
    subject = tiny(pair)
    model = subject.copy()
    model.generation_config.max_new_tokens = 5
    model.save_pretrained(tmp_path)
    assert (tmp_path / "generation_config.json").is_file()
    loaded = type(model).from_pretrained(tmp_path)
    assert loaded.generation_config.max_new_tokens == 5
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        assert getattr(loaded.generation_config, name) == getattr(subject.config, name)
    if subject.stack == "encoder-decoder":
        assert loaded.generation_config.decoder_start_token_id == subject.config.decoder_start_token_id
    assert GenerationConfig.from_pretrained(tmp_path).max_new_tokens == 5


@pytest.mark.parametrize("options", [{"guidance_scale": 1.5}, {"prefill_chunk_size": 2}], ids=str)
def test_what_is_for_decoders_is_refused_by_an_encoder_decoder(options):
    subject, (name,) = tiny(("t5-style", "seq2seq-lm")), options
    with pytest.raises(zoo.base.errors.UnsupportedOperationError, match=f"{name}={options[name]} is for decoders"):
        subject.model.generate(**prompt(subject), **LENGTH, **options)
