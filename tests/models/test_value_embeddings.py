"""Value embeddings: further embeddings of the tokens in attention's values."""

import peft
import pytest
import torch

import zoo
from zoo.base.errors import InputError
from zoo.models.capabilities import what_engines_lack
from zoo.models.embedding import ValueEmbedding

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
