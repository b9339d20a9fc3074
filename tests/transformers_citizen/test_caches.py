"""What `generate` keeps from step to step: caches of every kind, compiled steps, and many prompts at once."""

import copy

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from transformers import ContinuousBatchingConfig, GenerationConfig, StaticCache
from transformers_citizen.support import GENERATIVE, ONE_OF_EACH, over, prompt, tiny

import zoo
import zoo.base.errors

DECODERS = tuple(pair for pair in GENERATIVE if pair[1] == "causal-lm")
LENGTH = dict(max_new_tokens=6, min_new_tokens=6)


@over(DECODERS)
def test_generation_continues_from_a_cache(pair):
    subject = tiny(pair)
    ids = prompt(subject)["input_ids"]
    whole = subject.model.generate(input_ids=ids, max_new_tokens=6, min_new_tokens=6)
    half = subject.model.generate(
        input_ids=ids, max_new_tokens=3, min_new_tokens=3, return_dict_in_generate=True, use_cache=True
    )
    rest = subject.model.generate(
        input_ids=half.sequences,
        attention_mask=torch.ones_like(half.sequences),  # else generated padding would be taken for padding
        past_key_values=half.past_key_values,
        max_new_tokens=3,
        min_new_tokens=3,
    )
    assert rest.tolist() == whole.tolist()


@over(GENERATIVE)
def test_a_second_generation_does_not_see_the_first(pair):
    subject = tiny(pair)
    first = subject.model.generate(**prompt(subject), **LENGTH)
    subject.model.generate(**{name: ids.flip(1) for name, ids in prompt(subject).items()}, **LENGTH)
    assert subject.model.generate(**prompt(subject), **LENGTH).tolist() == first.tolist()


@pytest.mark.parametrize("name", ["llama-style", "deepseek-v3-style"])
def test_a_prompt_is_read_in_pieces_into_a_static_cache(name):
    subject = tiny((name, "causal-lm"))
    ids = prompt(subject)["input_ids"]
    expected = subject.model.generate(ids, **LENGTH, do_sample=False)
    given = dict(cache_implementation="static", prefill_chunk_size=2, disable_compile=True)
    assert subject.model.generate(ids, **LENGTH, do_sample=False, **given).tolist() == expected.tolist()


@over(ONE_OF_EACH[::2])
def test_a_model_that_is_never_cached_generates(pair):
    subject = tiny(pair)
    model = subject.copy()
    model.generation_config.use_cache = model.config.use_cache = False
    assert (
        model.generate(**prompt(subject), **LENGTH).tolist()
        == subject.model.generate(**prompt(subject), **LENGTH).tolist()
    )


@pytest.mark.thorough
@over(DECODERS, (("llama-style", "causal-lm"),))
def test_one_compiled_step_serves_a_whole_static_cache(pair):
    subject = tiny(pair)
    ids = prompt(subject)["input_ids"]
    expected = subject.model.generate(input_ids=ids, **LENGTH, do_sample=False)
    model = subject.copy()
    torch.compiler.reset()
    counter = CompileCounter()
    step = torch.compile(model.forward, fullgraph=True, backend=counter)
    cache = StaticCache(config=model.config, max_cache_len=16)
    with torch.no_grad():
        logits = model(input_ids=ids, past_key_values=cache, use_cache=True).logits
        for length in range(ids.shape[1], ids.shape[1] + 6):
            scores = logits[:, -1]
            if length < ids.shape[1] + 6:
                scores[:, subject.config.eos_token_id] = -torch.inf
            ids = torch.cat([ids, scores.argmax(-1, keepdim=True)], dim=1)
            logits = step(
                input_ids=ids[:, -1:], past_key_values=cache, position_ids=torch.full((1, 1), length), use_cache=True
            ).logits
    assert ids.tolist() == expected.tolist()
    assert counter.frame_count <= 2


@pytest.mark.slow
@over(ONE_OF_EACH[::2])
def test_generate_compiles_the_decode_step_by_itself(pair):
    subject = tiny(pair)
    expected = subject.model.generate(**prompt(subject), **LENGTH)
    torch.compiler.reset()
    model = copy.deepcopy(subject.model)
    generated = model.generate(**prompt(subject), **LENGTH, cache_implementation="static", disable_compile=False)
    assert generated.tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("universal", "share_layers=True"),
        ("alibi-decoder", "positions 'alibi'"),
        ("pre-norm:position=t5", "positions 't5'"),
        ("gemma2-style", "attn_logit_softcapping"),
    ],
)
def test_continuous_batching_is_refused_where_its_tokens_would_be_wrong(name, why):
    model = tiny((name, "causal-lm")).copy()
    with pytest.raises(zoo.base.errors.UnsupportedBackendError, match=f"continuous batching.*because of {why}"):
        model.generate_batch([[5, 6, 7]], max_new_tokens=2)
    with pytest.raises(zoo.base.errors.UnsupportedBackendError, match=why):
        model.set_attn_implementation("paged|eager")
    assert not model.config._attn_implementation.startswith("paged")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["llama-style", "pre-norm:sliding_window=4", pytest.param("gpt2-style", marks=pytest.mark.nightly)]
)
def test_continuous_batching_gives_what_each_prompt_gives_alone(name):
    subject = tiny((name, "causal-lm"))
    config = GenerationConfig(max_new_tokens=6, do_sample=False, eos_token_id=-1, pad_token_id=0)
    room = ContinuousBatchingConfig(num_blocks=8, block_size=16, max_batch_tokens=32)  # by itself it takes all memory
    prompts = [ids[: 5 + 2 * row].tolist() for row, ids in enumerate(subject.inputs()["input_ids"][:2])]
    outputs = subject.copy().float().generate_batch(prompts, config, continuous_batching_config=room)
    for prompt_ids, output in zip(prompts, outputs.values(), strict=True):
        alone = subject.model.generate(torch.tensor([prompt_ids]), generation_config=config)
        assert output.generated_tokens == alone[0, len(prompt_ids) :].tolist()
