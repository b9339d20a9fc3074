"""The tutorial's Transformer from text to text, and each of its quirks."""

import pytest
import torch
from fidelity import support
from oracles import explicando

import zoo
from zoo.converters.originals.explicando import character_tokenizer, translate

READS, WRITES = "hgfedcbai", "zyxwvut"
HINTS = dict(num_attention_heads=3, decoder_attention_heads=2, input_characters=READS, output_characters=WRITES)
ORACLE = dict(encoder_heads=3, decoder_heads=2)
SIZES = [
    dict(seed=0),
    dict(n_encoder_layers=1, n_decoder_layers=1, seed=1),
    dict(n_encoder_layers=3, n_decoder_layers=2, encoder_hidden_dim=8, seed=2),
]


def batch(seed=0):
    texts = [*explicando.random_inputs(READS, batch_size=5, seed=seed), ""]
    return texts, explicando.token_ids(texts, READS)


@pytest.mark.parametrize("dtype", support.DTYPES)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("theta", [10000.0, 500.0])
def test_transformer_equals_the_original(theta, sizes, dtype):
    weights = explicando.random_state_dict(**sizes, dtype=dtype)
    texts, ids = batch(sizes["seed"])
    expected = explicando.logits(weights, ids, theta=theta, **ORACLE)
    for _, model in support.modes(zoo.convert(weights, **HINTS, sinusoidal_theta=theta)):
        support.assert_equal("004 Transformer", model(input_ids=ids).logits, expected)
        assert translate(model, texts) == explicando.translate(weights, texts, READS, WRITES, theta=theta, **ORACLE)


@pytest.mark.parametrize("training", [False, True])
def test_gradients_are_equal_and_the_embedding_has_none(training):
    weights = explicando.random_state_dict()
    _, ids = batch()
    model = zoo.convert(weights, **HINTS).train(training)
    support.assert_gradients_equal(
        model,
        weights,
        lambda m: m(input_ids=ids).logits,
        lambda w: explicando.logits(w, ids, **ORACLE),
        without={key for key in weights if "embedding" in key},
    )


def test_both_sides_have_one_embedding():
    model = zoo.convert(explicando.random_state_dict(), **HINTS)
    assert model.model.encoder.embed_tokens.weight is model.model.decoder.embed_tokens.weight


def test_tokenizer_gives_the_ids_of_the_original():
    texts, ids = batch()
    tokenizer = character_tokenizer(READS)
    found = tokenizer(texts, padding=True, return_tensors="pt")
    assert torch.equal(found["input_ids"], ids)
    assert torch.equal(
        found["attention_mask"], (torch.arange(ids.shape[1]) < torch.tensor([[len(t) + 2] for t in texts]))
    )
    assert (tokenizer.pad_token_id, tokenizer.bos_token_id, tokenizer.eos_token_id) == (0, 1, 2)
    assert tokenizer.batch_decode(ids, skip_special_tokens=True) == texts


def test_tokenizer_takes_every_character_literally(tmp_path):
    characters = "<pad>bos\n \t.é\U0001f600"
    text = " <pad>\n\n\U0001f600 é<bos>. "
    character_tokenizer(characters).save_pretrained(tmp_path)
    from transformers import AutoTokenizer

    for tokenizer in (character_tokenizer(characters), AutoTokenizer.from_pretrained(tmp_path)):
        assert tokenizer(text)["input_ids"] == explicando.token_ids([text], characters)[0].tolist()
        assert tokenizer.decode(tokenizer(text)["input_ids"], skip_special_tokens=True) == text


def test_translate_refuses_what_the_original_cannot_read():
    model = zoo.convert(explicando.random_state_dict(), **HINTS)
    with pytest.raises(zoo.base.errors.InputError, match="'q'"):
        translate(model, ["abq"])
    with pytest.raises(zoo.base.errors.InputError, match="no texts"):
        translate(model, [])
    mute = zoo.convert(explicando.random_state_dict(), **{**HINTS, "output_characters": None})
    with pytest.raises(zoo.base.errors.InputError, match="output_characters"):
        translate(mute, ["abc"])


def full(quirk):
    """A model with all quirks and its twin without one, newly built where a checkpoint does not hold the difference."""
    sizes = dict(vocab_size=12, decoder_vocab_size=7, hidden_size=12, num_hidden_layers=2, intermediate_size=20)
    sizes |= dict(num_attention_heads=3, seed=0, dtype=torch.float64)
    quirks = support.all_but("explicando", quirk)
    return zoo.build("explicando", faithful=True, **sizes), zoo.build("explicando", quirks=quirks, **sizes)


def test_memory_makes_queries():
    weights = explicando.random_state_dict()
    _, ids = batch()
    on, off = support.with_and_without("explicando", "memory-makes-queries", weights, **HINTS)
    assert support.difference(on(input_ids=ids).logits, off(input_ids=ids).logits) > 0.1
    with pytest.raises(zoo.base.errors.InputError, match="one length"):
        on(input_ids=ids, decoder_input_ids=ids[:, :3])
    assert off(input_ids=ids, decoder_input_ids=ids[:, :3]).logits.shape == (6, 3, 7)
    # The future reaches the first row through the memory's queries and keys, which mix all values.
    later = ids.clone()
    later[0, -1] = 5
    change = [(m(input_ids=ids).logits - m(input_ids=ids, decoder_input_ids=later).logits)[0, 0] for m in (on, off)]
    assert change[0].abs().max() > 1e-3
    assert change[1].abs().max() == 0
    wider = zoo.build("explicando@tiny+memory-makes-queries", head_dim=6, vocab_size=12)
    assert wider(input_ids=ids).logits.shape == (6, ids.shape[1], 12)


def test_self_attention_is_bare():
    _, ids = batch()
    on, off = full("self-attention-stands-bare")
    layer = on.model.decoder.layers[0]
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    assert torch.equal(layer.self_attn_residual(x, layer.self_attn), layer.self_attn(x)[0])
    layer = off.model.decoder.layers[0]
    expected = layer.self_attn_residual.norm_out(x + layer.self_attn(x)[0])
    assert torch.equal(layer.self_attn_residual(x, layer.self_attn), expected)
    names = {name for name, _ in off.named_parameters()} - {name for name, _ in on.named_parameters()}
    assert all("self_attn_residual" in name for name in names) and len(names) == 4
    missing = off.load_state_dict(on.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert support.difference(on(input_ids=ids).logits, off(input_ids=ids).logits) > 0.1


def test_a_checkpoint_cannot_give_a_norm_that_it_does_not_have():
    with pytest.raises(zoo.converters.errors.ConversionError, match="self-attention-stands-bare"):
        zoo.convert(explicando.random_state_dict(), **HINTS, quirks=())


def test_decoder_reads_the_source():
    _, ids = batch()
    on, off = support.with_and_without(
        "explicando", "decoder-reads-the-source", explicando.random_state_dict(), **HINTS
    )
    assert torch.equal(on(input_ids=ids).logits, on(input_ids=ids, decoder_input_ids=ids).logits)
    shifted = torch.cat([torch.full((6, 1), 1), ids[:, :-1]], dim=1)
    assert torch.equal(off(input_ids=ids).logits, off(input_ids=ids, decoder_input_ids=shifted).logits)
    labels = torch.randint(0, 7, ids.shape)
    assert torch.equal(on(input_ids=ids, labels=labels).logits, on(input_ids=ids).logits)


def test_padding_is_attended():
    weights = explicando.random_state_dict()
    texts, ids = batch()
    mask = (torch.arange(ids.shape[1]) < torch.tensor([[len(text) + 2] for text in texts])).long()
    on, off = support.with_and_without("explicando", "padding-is-attended", weights, **HINTS)
    shortest = explicando.token_ids([texts[-2]], READS)
    length = shortest.shape[1]
    given = [
        model(input_ids=ids, attention_mask=mask, decoder_attention_mask=mask).logits[-2:-1, :length]
        for model in (on, off)
    ]
    alone = [model(input_ids=shortest).logits for model in (on, off)]
    assert support.difference(given[0], alone[0]) > 0.01
    assert support.difference(given[1], alone[1]) < 1e-12


def test_embedding_never_learns():
    _, ids = batch()
    for model, learns in zip(full("embedding-never-learns"), (False, True), strict=True):
        model(input_ids=ids).logits.sum().backward()
        assert (model.model.encoder.embed_tokens.weight.grad is not None) == learns


def test_torch_initialization():
    on, off = support.initialized("explicando")
    for encoder in (on, off):
        assert encoder.embed_tokens.weight.std().item() == pytest.approx(1, abs=0.05)
    assert off.layers[0].mlp.up_proj.weight.abs().max().item() > 64**-0.5
