"""Attention with values from elsewhere: of earlier layers, and of further embeddings of the tokens."""

from typing import Any

import peft
import pytest
import torch
from models.formulas import LENGTH, WIDTH, config, random, randomized

import zoo
from zoo.base.errors import ConfigError, InputError, UnsupportedOperationError
from zoo.models.capabilities import what_engines_lack
from zoo.models.embedding import ValueEmbedding
from zoo.models.layers import build_mixer

DEPTH = 3
SHARED = "llama-style@tiny:attention=kv-sharing,num_hidden_layers=4,num_kv_shared_layers=2"
WINDOWS = SHARED.replace("llama-style", "gpt-oss-style")


def layers_of(**settings: Any) -> list[Any]:
    made = config(num_hidden_layers=DEPTH, **settings)
    return [randomized(build_mixer(made, place, is_causal=True), seed=place) for place in range(DEPTH)]


@pytest.mark.parametrize("settings", [{"attention": "value-residual"}, {"attention": "kv-sharing"}], ids=str)
def test_a_layer_that_reads_another_is_refused_by_itself(settings: dict[str, Any]) -> None:
    with pytest.raises(
        InputError, match=f"layer {DEPTH - 1} of attention='{settings['attention']}' was called by itself"
    ):
        layers_of(**settings)[-1](random(LENGTH, WIDTH)[None])


def test_a_new_value_residual_takes_the_mean() -> None:
    model = zoo.build("value-residual@tiny")
    assert [layer.self_attn.value_lambdas.tolist() for layer in model.model.layers[1:]] == [[0.5, 0.5]]


@pytest.mark.parametrize("name", [SHARED, WINDOWS], ids=["alike", "windows"])
def test_layers_that_share_cache_nothing(name: str) -> None:
    model = zoo.build(name, seed=0)
    cache = model(torch.arange(3, 8)[None], use_cache=True).past_key_values
    assert [layer.keys is not None for layer in cache.layers] == [True, True, False, False][: len(cache.layers)]
    first = None if name == SHARED else "store"
    assert model.config.kv_sharing_modes == [first, "store", "reuse", "reuse"]


def test_reentrant_checkpointing_is_refused_by_name() -> None:
    model = zoo.build("value-residual@tiny:vocab_size=20")
    with pytest.raises(UnsupportedOperationError, match="use_reentrant=True was given, which loses gradients"):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})


HYBRID = "llama-style@tiny:mixer=short-conv,num_hidden_layers=5"


def test_the_first_values_are_those_of_the_first_layer_with_attention() -> None:
    model = zoo.build(f"{HYBRID},attention=value-residual")
    assert [getattr(layer.self_attn, "mixes", None) for layer in model.model.layers] == [None, False, None, True, None]


def test_a_mixer_among_layers_that_share_keeps_its_state() -> None:
    config = zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=2")
    assert config.kv_sharing_modes == [None, "store", None, "reuse", None]
    with pytest.raises(ConfigError, match="attention='kv-sharing' was given with mixer='short-conv'.*has attention"):
        zoo.config(f"{HYBRID},attention=kv-sharing,num_kv_shared_layers=1")


@pytest.mark.parametrize(
    ("position", "source"), [("rotary", "None store None reuse"), ("alibi", "None None store reuse")]
)
def test_keys_are_shared_by_layers_that_rotate_alike(position: str, source: str) -> None:
    """Otherwise scores would depend on places, not on distances: padding on the left would change them."""
    settings = {"attention": "kv-sharing", "nope_layers": [False, True], "position": position, "vocab_size": 20}
    model = zoo.build("llama-style@tiny", num_hidden_layers=4, seed=0, **settings).double()
    assert " ".join(map(str, model.config.kv_sharing_modes)) == source
    ids = IDS[None].clamp(min=3)
    padded, mask = torch.nn.functional.pad(ids, (5, 0)), torch.nn.functional.pad(torch.ones_like(ids), (5, 0))
    torch.testing.assert_close(model(padded, attention_mask=mask).logits[:, 5:], model(ids).logits, atol=1e-6, rtol=0)
    if position == "rotary":
        with pytest.raises(ConfigError, match=r"num_kv_shared_layers=1 .* with nope_layers=\[False, False, True\]"):
            zoo.config("llama-style", num_hidden_layers=3, **settings | {"nope_layers": [False, False, True]})


DECODER = "gpt2-style@tiny:attention=value-embeddings"
ENCODER = "bert-style@tiny:attention=value-embeddings,value_embedding_interval=1"
PAIR = "post-norm@tiny:attention=value-embeddings,value_embedding_interval=1"
IDS = torch.tensor([3, 9, 3, 0, 7, 9, 1])


def tables(model: torch.nn.Module) -> dict[str, int]:
    """The number of ids of every table, by its layer."""
    found = model.named_modules()
    return {name.split("self_attn")[0]: m.num_embeddings for name, m in found if isinstance(m, ValueEmbedding)}


@pytest.mark.parametrize(
    ("interval", "depth", "expected"), [(1, 3, [0, 1, 2]), (2, 3, [0, 2]), (2, 4, [1, 3]), (9, 4, [3])]
)
def test_every_other_layer_has_a_table_the_last_one_first(interval: int, depth: int, expected: list[int]) -> None:
    model = zoo.build(f"{DECODER},num_hidden_layers={depth},value_embedding_interval={interval}")
    assert [f"model.layers.{layer}." for layer in expected] == list(tables(model))
    layers = [layer.self_attn for layer in model.model.layers]
    assert [layer.value_lambdas.tolist() for layer in layers if layer.mixes] == [[0.5, 0.5]] * len(expected)


def test_a_decoder_behind_an_encoder_looks_its_own_tokens_up() -> None:
    """With nothing but embeddings in the values, each stack changes with its own table."""
    settings = {"vocab_size": 20, "decoder_vocab_size": 23, "share_encoder_decoder_embeddings": False, "seed": 0}
    model = zoo.build(PAIR, "seq2seq-lm", tie_word_embeddings=False, **settings)
    assert set(tables(model).values()) == {20, 23}
    assert {name: size for name, size in tables(model).items() if "encoder" in name.split(".")} == {
        f"model.encoder.layers.{layer}.": 20 for layer in range(2)
    }


def test_tables_are_resized_with_the_vocabulary_that_is_theirs() -> None:
    model = zoo.build(PAIR, "seq2seq-lm", vocab_size=20, decoder_vocab_size=23, seed=0)
    model.resize_token_embeddings(25)
    assert {size for name, size in tables(model).items() if ".encoder." in name} == {25}
    assert {size for name, size in tables(model).items() if ".decoder." in name} == {23}
    model.resize_decoder_token_embeddings(30, pad_to_multiple_of=16)
    assert {size for name, size in tables(model).items() if ".decoder." in name} == {32}
    one = zoo.build(f"{PAIR},share_encoder_decoder_embeddings=true,vocab_size=20", "seq2seq-lm", seed=0)
    one.resize_token_embeddings(22)
    assert len(tables(one)) == 4 and set(tables(one).values()) == {22}


@pytest.mark.parametrize("given", ["inputs_embeds", "a layer"])
def test_embeddings_without_ids_are_refused_by_name(given: str) -> None:
    model = zoo.build(DECODER)
    with pytest.raises(InputError, match="layer 1 of attention='value-embeddings' looks tokens up by their ids"):
        if given == "inputs_embeds":
            model(inputs_embeds=torch.zeros(1, 3, 64))
        else:
            model.model.layers[1](torch.zeros(1, 3, 64))


def test_serving_engines_are_refused_which_give_no_ids_and_paging_is_not() -> None:
    made = zoo.config(DECODER)
    assert "reads token ids" in (what_engines_lack(made, "vllm") or "")
    assert what_engines_lack(made, "paged|sdpa") is None
    assert zoo.build(DECODER).model._pp_plan == {}, "a later stage has no ids"


def test_further_predicted_tokens_are_looked_up_as_well() -> None:
    """The layer that is given the next token's embedding mixes that token's value embedding in."""
    model = zoo.build(f"{DECODER},num_nextn_predict_layers=1,vocab_size=20", seed=0).train()
    mtp = model.mtp.depths[0].layer.self_attn
    model(input_ids=torch.tensor([[5, 6, 7, 8]]), labels=torch.tensor([[5, 6, 7, 8]])).mtp_loss.backward()
    # The first position reads token 6 to predict 7, the second 7 to predict 8; the rest predicts nothing.
    rows = mtp.value_embedding.weight.grad.abs().sum(dim=1).nonzero().flatten().tolist()
    assert rows == [6, 7]


@pytest.mark.slow
def test_they_compile_into_one_graph() -> None:
    model, ids = zoo.build(f"{DECODER},vocab_size=20", seed=0).eval(), IDS[None]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(ids).logits, model(ids).logits)


def test_adapters_of_tables_train_and_virtual_tokens_are_refused() -> None:
    ids = IDS[None]
    adapted = peft.get_peft_model(zoo.build(DECODER), peft.LoraConfig(target_modules=["q_proj", "value_embedding"]))
    adapted(input_ids=ids, labels=ids).loss.backward()
    trained = [name for name, parameter in adapted.named_parameters() if parameter.grad is not None]
    assert any("value_embedding.lora_embedding_B" in name for name in trained)
    virtual = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    with pytest.raises(InputError, match="not with embeddings"):
        peft.get_peft_model(zoo.build(DECODER), virtual)(input_ids=ids)
