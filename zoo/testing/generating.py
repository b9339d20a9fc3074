"""Checks of generation: caches, padding, beams."""

from typing import Any

import torch
from transformers.cache_utils import EncoderDecoderCache

from zoo.fast.captured_steps import captured_steps_of
from zoo.fast.preallocated_cache import CACHE_NAME, GrowingLayer, self_attention_cache
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel

from .cases import GENERATIVE, assert_equal, check
from .subjects import BATCH_SIZE, SOURCE_LENGTH, TARGET_LENGTH, Subject, token_ids

NEW_TOKENS = 6


def generate(subject: Subject, model: ZooPreTrainedModel | None = None, **settings: Any) -> Any:
    """Output of `generate`, of a fixed number of tokens with the scores of every step, as a dictionary."""
    inputs = {"input_ids": subject.inputs()["input_ids"]}
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    fixed = {"min_new_tokens": NEW_TOKENS, "max_new_tokens": NEW_TOKENS, "do_sample": False}
    report = {"return_dict_in_generate": True, "output_logits": True, "output_scores": True}
    return (model or subject.model).generate(**{**inputs, **fixed, **report, **settings})


def assert_same_text(one: Any, other: Any, what: str) -> None:
    """Require two generations to agree in their tokens and in the logits of every step."""
    assert one.sequences.tolist() == other.sequences.tolist(), (
        f"{what}: the texts are {one.sequences.tolist()} and {other.sequences.tolist()}"
    )
    logits = torch.stack(other.logits)
    rounding = 4 * torch.finfo(torch.float32).eps * max(1.0, float(logits.abs().max()))  # generate() gives float32
    assert_equal(torch.stack(one.logits), logits, f"{what}: the logits", rounding)


@check(tasks=GENERATIVE)
def check_replayed_steps_change_nothing(subject: Subject) -> None:
    """A text is the same where steps are captured and replayed, on prepacked weights too; a translation with beams."""
    model = subject.copy()
    settings = {"num_beams": 2} if subject.config.is_encoder_decoder else {}
    with fast_paths(graph_capture="never"):
        plain = generate(subject, model, **settings)
    with fast_paths(graph_capture="always", prepacked_weights="always"):
        replayed = generate(subject, model, **settings)
    assert_same_text(replayed, plain, "replayed steps = forwards")
    layers = self_attention_cache(getattr(plain, CACHE_NAME)).layers
    captured = captured_steps_of(model)
    on_cpu = model.device.type == "cpu"
    expected = on_cpu and captured is not None and all(type(layer) is GrowingLayer for layer in layers)
    steps = [] if captured is None else list(captured.steps.values())
    assert any(steps) == expected, f"{len(steps)} kinds of steps were tried, {sum(map(bool, steps))} captured"


@check(tasks=GENERATIVE)
def check_generation_with_a_cache_equals_without(subject: Subject) -> None:
    """Greedy generation is the same with a cache, without one, and written out as repeated argmax."""
    cached = generate(subject)
    assert getattr(cached, CACHE_NAME) is not None, "generation made no cache"
    assert_same_text(cached, generate(subject, use_cache=False), "generation with a cache = without")
    inputs = subject.inputs()
    config = subject.config
    written = inputs["input_ids"]
    if subject.stack == "encoder-decoder":
        assert config.decoder_start_token_id is not None, "decoder_start_token_id is None"
        written = torch.full((BATCH_SIZE, 1), config.decoder_start_token_id)
    ends = config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id]
    for _ in range(NEW_TOKENS):
        fed = {"decoder_input_ids": written} if subject.stack == "encoder-decoder" else {"input_ids": written}
        logits = subject.run(**{**inputs, **fed})[:, -1]
        logits[:, ends] = -torch.inf
        written = torch.cat([written, logits.argmax(-1, keepdim=True)], dim=1)
    assert cached.sequences.tolist() == written.tolist(), "greedy generation = repeated argmax"


@check(tasks=GENERATIVE)
def check_a_static_cache_equals_a_dynamic_one(subject: Subject) -> None:
    """A cache of fixed size gives the same text."""
    assert_same_text(generate(subject, cache_implementation="static"), generate(subject), "static = dynamic cache")


@check(tasks=GENERATIVE)
def check_beam_search_equals_without_a_cache(subject: Subject) -> None:
    """Beams are reordered in the cache as they are in the text, and their scores are the text's log-probabilities."""
    settings: dict[str, Any] = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0}
    cached, uncached = generate(subject, **settings), generate(subject, use_cache=False, **settings)
    assert cached.sequences.tolist() == uncached.sequences.tolist(), "beam search with a cache = without"
    assert_equal(cached.sequences_scores, uncached.sequences_scores, "scores of beams with a cache = without", 1e-5)
    texts, inputs = cached.sequences, subject.inputs()
    rows = {name: tensor.repeat_interleave(2, dim=0) for name, tensor in inputs.items()}
    if subject.stack == "encoder-decoder":
        logits, begin = subject.run(**{**rows, "decoder_input_ids": texts[:, :-1]}), 1
    else:
        logits, begin = subject.run(input_ids=texts[:, :-1]), inputs["input_ids"].shape[1]
    log_probabilities = logits.log_softmax(-1).gather(-1, texts[:, 1:, None])[..., 0]
    total = log_probabilities[:, begin - 1 :].sum(-1)
    tolerance = 1e-5 * max(1.0, float(logits.abs().max()))  # scores are computed in float32
    assert_equal(total, cached.sequences_scores.to(total), "scores of beams = log-probabilities of texts", tolerance)


@check(tasks=GENERATIVE)
def check_padded_prompts_generate_the_same(subject: Subject) -> None:
    """A batch of prompts of different lengths gives what each prompt gives alone."""
    short, long = (token_ids(1, length, subject.config.vocab_size, seed=length) for length in (3, SOURCE_LENGTH))
    assert subject.config.pad_token_id is not None, "pad_token_id is None"
    gap = torch.full((1, SOURCE_LENGTH - 3), subject.config.pad_token_id)
    ones, zeros = torch.ones_like(short), torch.zeros_like(gap)
    # Decoders continue their prompts, which must end where the batch ends; encoders read theirs from the left.
    on_the_left = subject.stack == "decoder"
    row = torch.cat([gap, short] if on_the_left else [short, gap], dim=1)
    mask = torch.cat([zeros, ones] if on_the_left else [ones, zeros], dim=1)
    batch = generate(subject, input_ids=torch.cat([row, long]), attention_mask=torch.cat([mask, torch.ones_like(long)]))
    for index, prompt in enumerate((short, long)):
        alone = generate(subject, input_ids=prompt, attention_mask=torch.ones_like(prompt))
        in_batch = batch.sequences[index, -NEW_TOKENS:].tolist()
        assert in_batch == alone.sequences[0, -NEW_TOKENS:].tolist(), f"prompt {index} in a padded batch = alone"
        assert_equal(
            torch.stack(batch.logits)[:, index], torch.stack(alone.logits)[:, 0], "logits in a padded batch = alone"
        )


@check(stacks=("decoder", "encoder-decoder"), tasks=GENERATIVE)
def check_a_text_can_be_read_in_pieces(subject: Subject) -> None:
    """Continuing from a cache equals reading at once, and the source is projected and cached once."""
    inputs = subject.inputs()
    whole = subject.run(**inputs)
    name = "decoder_input_ids" if subject.stack == "encoder-decoder" else "input_ids"
    cache, pieces = None, []
    for piece in inputs[name].split([3, 1, 2, TARGET_LENGTH - 6], dim=1):
        with torch.no_grad():
            outputs = subject.model(**{**inputs, name: piece}, past_key_values=cache, use_cache=True)
        cache = getattr(outputs, CACHE_NAME)
        pieces.append(outputs.logits)
    assert_equal(torch.cat(pieces, dim=1), whole, "a text read in pieces = at once")
    if isinstance(cache, EncoderDecoderCache):
        length = cache.cross_attention_cache.get_seq_length()
        assert length == SOURCE_LENGTH, (
            f"the cross-attention cache holds {length} keys of {SOURCE_LENGTH} source tokens"
        )


@check(tasks=("causal-lm", "masked-lm"))
def check_logits_to_keep_selects_positions(subject: Subject) -> None:
    """logits_to_keep leaves out positions without changing the others."""
    whole, inputs = subject.run(), subject.inputs()
    assert_equal(subject.run(**inputs, logits_to_keep=2), whole[:, -2:], "logits_to_keep=2")
    chosen = torch.tensor([0, 3])
    assert_equal(subject.run(**inputs, logits_to_keep=chosen), whole[:, chosen], "logits_to_keep=[0, 3]")
    per_row = torch.tensor([[0, 3], [1, 2], [5, 6]])
    expected = torch.stack([row[indices] for row, indices in zip(whole, per_row, strict=True)])
    assert_equal(subject.run(**inputs, logits_to_keep=per_row), expected, "logits_to_keep by sequence")
