"""Masks of attention, grouped queries, windows, and further parts."""

import copy
from typing import Any

import pytest
import torch
from models.formulas import HEADS, LENGTH, THROUGH_FLOAT32, WIDTH, close, config, random, randomized
from native_models import LLAMA, batch, largest_difference, native_model, outputs
from transformers import DynamicCache

import zoo
from zoo.base.errors import InputError
from zoo.models.attention import Attention
from zoo.testing import randomize

SIZES: Any = {"vocab_size": 11, "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": 1}


def test_grouped_queries_share_keys_in_order() -> None:
    """Query heads 0 and 1 read key-value head 0, heads 2 and 3 read head 1."""
    settings = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 3}
    grouped = randomized(Attention(config(**settings), 0))
    full = randomized(Attention(config(num_attention_heads=4, head_dim=3), 0))
    for name in ("q_proj", "o_proj"):
        getattr(full, name).load_state_dict(getattr(grouped, name).state_dict())
    for name in ("k_proj", "v_proj"):
        for kind in ("weight", "bias"):
            by_head = getattr(getattr(grouped, name), kind).unflatten(0, (2, 3))
            getattr(getattr(full, name), kind).data = by_head[[0, 0, 1, 1]].flatten(0, 1)
    x = random(2, LENGTH, WIDTH)
    close(grouped(x)[0], full(x)[0].detach())


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("window", [1, 2, 3])
def test_a_sliding_window_lets_a_query_see_that_many_keys(task: str, window: int) -> None:
    model = zoo.build("pre-norm", task, seed=0, sliding_window=window, attn_implementation="eager", **SIZES)
    with torch.no_grad():
        weights = model(torch.arange(LENGTH)[None], output_attentions=True).attentions[0]
    seen = [[j for j in range(LENGTH) if weights[0, :, i, j].min() > 0] for i in range(LENGTH)]
    for i in range(LENGTH):
        if task == "causal-lm":
            assert seen[i] == [j for j in range(LENGTH) if 0 <= i - j < window]
        else:
            assert i in seen[i]
            assert all(abs(i - j) <= window for j in seen[i])
            assert all((j in seen[i]) == (i in seen[j]) for j in range(LENGTH))


def visible(causal: bool) -> torch.Tensor:
    """A row without padding and one that ends in two positions of it. *Shape:* (2, 1, LENGTH, LENGTH)"""
    seen = torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool)
    seen[1, ..., -2:] = False
    return seen.tril() if causal else seen


FORMS = {
    "boolean": lambda seen: seen,
    "integers": lambda seen: seen.long(),
    "bytes": lambda seen: seen.to(torch.uint8),
    "float64": lambda seen: torch.zeros(seen.shape).double().masked_fill(~seen, torch.finfo(torch.float64).min),
    "bfloat16": lambda seen: torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.bfloat16).min).bfloat16(),
    "infinite": lambda seen: torch.zeros(seen.shape).masked_fill(~seen, -torch.inf),
    "of every head": lambda seen: seen.expand(-1, HEADS, -1, -1).int(),
    "of a layer type": lambda seen: {"full_attention": seen.long()},
    "of tokens, of a layer type": lambda seen: {"full_attention": seen[:, 0, -1]},
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", ["sdpa", "eager"])
@pytest.mark.parametrize(
    ("part", "task"), [("multi-head", "causal-lm"), ("sinks", "masked-lm"), ("masked-rows-uniform", "causal-lm")]
)
def test_a_mask_of_queries_and_keys_hides_the_same_in_every_form(part: str, task: str, backend: str, form: str) -> None:
    if (part, backend) == ("masked-rows-uniform", "sdpa"):
        return  # refused
    model = zoo.build("pre-norm", task, seed=0, attention=part, attn_implementation=backend, **SIZES)
    ids, seen = torch.arange(2 * LENGTH).view(2, -1) % 11, visible(task == "causal-lm")
    with torch.no_grad():
        expected = model(ids, attention_mask=seen[:, 0, -1].long()).logits
        logits = model(ids, attention_mask=FORMS[form](seen)).logits
    torch.testing.assert_close(logits[1, :-2], expected[1, :-2])
    torch.testing.assert_close(logits[0], expected[0])


@pytest.mark.parametrize("task", ["causal-lm", "masked-lm"])
@pytest.mark.parametrize("shape", [(LENGTH,), (1, LENGTH), (3, LENGTH), (2, LENGTH + 2), (2, 3, LENGTH)])
def test_a_mask_of_another_shape_is_refused(task: str, shape: tuple[int, ...]) -> None:
    model = zoo.build("pre-norm", task, position="learned-unpadded", **SIZES)
    with pytest.raises(InputError, match="attention_mask"):
        model(torch.ones(2, LENGTH, dtype=torch.long), attention_mask=torch.ones(shape, dtype=torch.long))


def test_tokens_are_classified_after_a_prefix_with_masks_by_layer_type() -> None:
    model = zoo.build("bert-style@tiny", "token-classification", vocab_size=11, seed=0)
    heads, width = model.config.num_attention_heads, model.config.head_dim

    def logits(mask: Any) -> torch.Tensor:
        prefix = DynamicCache()
        for layer in range(model.config.num_hidden_layers):
            prefix.update(*random(2, 2, heads, 3, width, seed=layer).float(), layer)
        return model(torch.arange(2 * LENGTH).view(2, -1) % 11, attention_mask=mask, past_key_values=prefix).logits

    seen = torch.ones(2, 3 + LENGTH, dtype=torch.long)
    seen[1, -2:] = 0
    by_type = {"full_attention": seen[:, None, None].expand(-1, 1, LENGTH, -1).bool()}
    torch.testing.assert_close(logits(by_type)[1, :-2], logits(seen)[1, :-2])


LATENT: dict[str, Any] = {"kv_lora_rank": 12, "qk_nope_head_dim": 6, "v_head_dim": 10}


@pytest.mark.parametrize("query_rank", [0, 14], ids=["queries", "latent-queries"])
def test_latent_attention_reads_one_token_after_the_other_from_its_cache(query_rank: int) -> None:
    """DeepSeek's class with dense layers alone is compared with what is converted from it."""
    own = {**LATENT, "q_lora_rank": query_rank or None, "qk_rope_head_dim": 4, "num_key_value_heads": 4}
    own |= {"rms_norm_eps": 0.1}  # of all norms but those on latent vectors
    native = native_model("DeepseekV3", "ForCausalLM", {**LLAMA, **own, "first_k_dense_replace": 2})
    ours = zoo.convert(native)
    assert largest_difference(outputs(native), outputs(ours)) < THROUGH_FLOAT32
    ids = batch(native.config)["input_ids"][:1]
    with torch.no_grad():
        whole = ours(ids).logits
        cache = ours(ids[:, :1], use_cache=True).past_key_values
        for step in range(1, ids.shape[1]):
            logits = ours(ids[:, step : step + 1], past_key_values=cache).logits
            torch.testing.assert_close(logits[:, 0], whole[:, step], atol=1e-6, rtol=1e-6)
    kept = [tuple(state.shape[1:]) for state in (cache.layers[0].keys, cache.layers[0].values)]
    assert kept == [(1, ids.shape[1], 4), (1, ids.shape[1], 12)]


@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_a_cached_step_of_latent_attention_takes_a_mask_of_every_head(backend: str) -> None:
    model = zoo.build("llama-style@tiny:attention=latent", seed=0, vocab_size=11, attn_implementation=backend).double()
    ids = torch.arange(LENGTH)[None]
    seen = visible(True)[:1].repeat(1, model.config.num_attention_heads, 1, 1)
    seen[0, 0, 2:, 1] = seen[0, 1:, 3:, 2] = False
    with torch.no_grad():
        cache = model(ids[:, :-1], attention_mask=seen[:, :, :-1, :-1], use_cache=True).past_key_values
        last = model(ids[:, -1:], attention_mask=seen[:, :, -1:], past_key_values=cache).logits
        torch.testing.assert_close(last[:, 0], model(ids, attention_mask=seen).logits[:, -1])


@pytest.mark.parametrize("name", ["ltg-bert-style", "gpt-bert-style"])
def test_disentangled_scores_have_any_scale(name: str) -> None:
    """Each of the three is linear in a query: half of it is as good as twice the divisor."""
    settings: dict[str, Any] = {"vocab_size": 37, "seed": 0, "dtype": torch.float64}
    usual = randomize(zoo.build(f"{name}@tiny", "masked-lm", **settings))
    root = usual.config.head_dim**0.5
    half = zoo.build(f"{name}@tiny:attention_scale={2 * root}", "masked-lm", **settings)
    half.load_state_dict(usual.state_dict())
    with torch.no_grad():
        for name, one in usual.named_parameters():
            if "q_proj" in name:
                one /= 2
    ids = torch.arange(3, 23).view(2, 10)
    torch.testing.assert_close(half(ids).logits, usual(ids).logits)
    widths = {width: zoo.config("gpt-bert-style@tiny:parametrization=mup", head_dim=width) for width in (16, 64)}
    assert {width: config.attention_scale for width, config in widths.items()} == {16: 2.0, 64: 8.0}


def test_deepnorm_scales_the_rows_that_make_values() -> None:
    model = zoo.build("pre-norm", "causal-lm", attention="latent", initializer="deepnorm", num_hidden_layers=2, seed=0)
    for layer in model.model.layers:
        expansion = layer.self_attn.kv_b_proj
        by_head = expansion.weight.unflatten(0, (expansion.heads, -1))
        keys, values = by_head[:, : expansion.key_width].std(), by_head[:, expansion.key_width :].std()
        torch.testing.assert_close(values / keys, torch.tensor((8 * 2) ** -0.25), atol=0.01, rtol=0.0)


def test_a_hook_on_the_expansion_of_latent_vectors_sees_expanded_ones_in_a_cached_step_too() -> None:
    model = zoo.build("deepseek-v3-style@tiny", "causal-lm", vocab_size=37, seed=0, dtype=torch.float64)
    for layer in model.model.layers:
        layer.self_attn.kv_b_proj.register_forward_hook(lambda module, inputs, output: output + 0.3)
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
        step = model(ids[:, -1:], past_key_values=cache).logits[:, -1]
        torch.testing.assert_close(step, model(ids).logits[:, -1])


def test_a_cached_step_of_latent_attention_compiles_into_one_graph() -> None:
    model = zoo.build("deepseek-v3-style@tiny", "causal-lm", vocab_size=37, seed=0)
    ids = torch.arange(3, 13)[None]
    with torch.no_grad():
        cache = model(ids[:, :-1], use_cache=True).past_key_values
        graph = {"backend": "eager", "fullgraph": True}
        step = torch.compile(lambda past: model(ids[:, -1:], past_key_values=past).logits, **graph)
        torch.testing.assert_close(step(copy.deepcopy(cache)), model(ids[:, -1:], past_key_values=cache).logits)
