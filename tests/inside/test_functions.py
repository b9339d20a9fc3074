"""Heads, positions, early predictions, and what is recorded while training."""

from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import torch

import zoo
from zoo.base.errors import ConfigError, InputError, ZooError
from zoo.inside import NormRecorder, head_statistics, heads_figure, logit_lens, norms_figure, position_tables, summary
from zoo.inside.heads import distances, entropies, shares

TINY = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
TEXTS = ["My son is here.", "The dog doesn't like hot milk, but my son does."]


def uniform(model):
    """Make every score zero, so that heads look at all they may see alike."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "q_proj" in name:
                parameter.zero_()
    return model


def test_entropy_and_distance_of_heads_that_look_at_everything_alike(writer, translator, tokenizers):
    lengths = [len(tokenizers.source(text)["input_ids"]) for text in TEXTS]  # with the end
    encoder, _, cross = head_statistics(uniform(zoo.load(translator)), TEXTS, TEXTS, tokenizer=tokenizers)
    queries = sum(lengths)
    entropy = sum(n * np.log(n) for n in lengths) / queries
    distance = sum((n * n - 1) / 3 for n in lengths) / queries  # the mean of |i - j| is (n² - 1) / 3n
    np.testing.assert_allclose(encoder.entropy, entropy, rtol=1e-5)
    np.testing.assert_allclose(encoder.distance, distance, rtol=1e-5)
    assert cross.distance is None

    seen = [np.arange(1, n) for n in lengths]  # a language model's texts have no end; a query sees all up to itself
    (decoder,) = head_statistics(uniform(zoo.load(writer)), TEXTS, tokenizer=tokenizers)
    np.testing.assert_allclose(decoder.entropy, np.log(np.concatenate(seen)).mean(), rtol=1e-5)
    np.testing.assert_allclose(decoder.distance, ((np.concatenate(seen) - 1) / 2).mean(), rtol=1e-5)
    records = pandas.DataFrame(decoder.to_records())
    assert list(records[["layer", "head"]].iloc[-1]) == [2, 4]
    assert len(heads_figure([encoder, decoder, cross]).axes) == 2 * 3 + 5  # panels, and bars of those that are shown


def test_padding_counts_for_nothing(translator, tokenizers):
    together = head_statistics(translator, TEXTS, TEXTS)
    alone = [head_statistics(translator, [text], [text]) for text in TEXTS]
    source, target = ([len(one(text)["input_ids"]) for text in TEXTS] for one in (tokenizers.source, tokenizers.target))
    for place, counts in enumerate((source, target, target)):
        expected = np.average([one[place].entropy for one in alone], axis=0, weights=counts)
        np.testing.assert_allclose(together[place].entropy, expected, rtol=1e-4)


def test_texts_without_targets_or_targets_without_use_are_refused(translator, writer, tokenizers):
    for model, sources, targets in ((translator, [], None), (translator, TEXTS, TEXTS[:1]), (writer, TEXTS[:1], TEXTS)):
        with pytest.raises(InputError, match="give at least one text, and a target for each"):
            head_statistics(model, sources, targets)
    reader = zoo.build("pre-norm", "masked-lm", vocab_size=len(tokenizers.source), **TINY)
    with pytest.raises(ConfigError, match="only reads"):
        head_statistics(reader, TEXTS, TEXTS, tokenizer=tokenizers)


def test_weight_that_falls_on_padding_is_left_out():
    weights, keys = torch.full((1, 1, 1, 2, 4), 0.25), torch.tensor([[True, True, False, False]])
    real = shares(weights, keys)
    np.testing.assert_allclose(real.flatten(), [0.5, 0.5, 0.0, 0.0] * 2)
    np.testing.assert_allclose(entropies(real).flatten(), np.log(2))
    np.testing.assert_allclose(distances(real).flatten(), 0.5)


def test_a_head_that_looks_at_all_tokens_alike_does_so_with_any_sink(tokenizers):
    sizes = {**TINY, "vocab_size": len(tokenizers.source)}
    plain, sink = (uniform(zoo.build(f"pre-norm:attention={one}", **sizes)) for one in ("multi-head", "sinks"))
    expected, found = (head_statistics(model, TEXTS, tokenizer=tokenizers)[0] for model in (plain, sink))
    np.testing.assert_allclose(found.entropy, expected.entropy, rtol=1e-5)
    np.testing.assert_allclose(found.distance, expected.distance, rtol=1e-5)


@pytest.mark.parametrize("placement", ["pre", "post"])
def test_after_n_layers_the_lens_predicts_as_a_model_of_n_layers(placement, tokenizers):
    name = f"pre-norm:norm_placement={placement},final_norm={placement == 'pre'}"
    sizes = {**TINY, "vocab_size": len(tokenizers.source)}
    model = zoo.build(name, "causal-lm", seed=4, **sizes)
    shallow = zoo.build(name, "causal-lm", **{**sizes, "num_hidden_layers": 1})
    assert not shallow.load_state_dict(model.state_dict(), strict=False).missing_keys
    lens = logit_lens(model, TEXTS[1], tokenizer=tokenizers, top=3)
    ids = torch.tensor([tokenizers.source(TEXTS[1])["input_ids"][:-1]])
    for row, deep in ((1, shallow), (2, model)):
        with torch.no_grad():
            probabilities = deep(ids).logits[0].softmax(-1).numpy()
        np.testing.assert_allclose(lens.probabilities[row], -np.sort(-probabilities)[:, :3], rtol=1e-4)
        right = probabilities[np.arange(len(ids[0]) - 1), ids[0, 1:]]
        np.testing.assert_allclose(lens.right_probability[row, :-1], right, rtol=1e-4)
    assert lens.right == (*lens.tokens[1:], None) and np.isnan(lens.right_probability[:, -1]).all()
    record = lens.to_records()[len(lens.tokens)]
    assert (record["layer"], record["right"]) == (1, lens.tokens[1]) and len(record["top"]) == 3


def test_the_lens_of_an_encoder_decoder(translator, tokenizers):
    lens = logit_lens(translator, TEXTS[0], "Meu filho")
    assert lens.tokens == ("<bos>", "Meu", "filho") and lens.right == ("Meu", "filho", "<eos>")
    assert np.isfinite(lens.right_probability).all() and len(lens.figure().axes) == 2
    with pytest.raises(ConfigError, match="valid are models for causal-lm"):
        logit_lens(zoo.build("bert-style@tiny", "masked-lm", vocab_size=90), "No.", tokenizer=tokenizers)


def test_tables_of_positions():
    def only(name: str, length: int = 12):
        (table,) = position_tables(zoo.build(name, "causal-lm", vocab_size=20, **TINY), length)
        return table

    sines = only("pre-norm:position=sinusoidal").values[0]
    places, features = np.arange(12)[:, None], np.arange(8)[None]
    angles = places / 10000 ** (2 * features / 16)  # Vaswani et al. 2017, section 3.5
    np.testing.assert_allclose(sines[:, 0::2], np.sin(angles), atol=1e-5)
    np.testing.assert_allclose(sines[:, 1::2], np.cos(angles), atol=1e-5)

    rotary = only("llama-style")
    assert rotary.names == ("cosines", "sines")
    np.testing.assert_allclose((rotary.values**2).sum(axis=0), 1, atol=1e-5)
    slopes = -only("alibi-decoder").values[:, 11, 10]
    np.testing.assert_allclose(slopes, [2**-2, 2**-4, 2**-6, 2**-8])  # Press et al. 2021: a head each
    learned = only("pre-norm:position=learned,max_position_embeddings=7")
    assert learned.values.shape == (1, 7, 16)
    assert len(learned.to_records()) == 7 * 16 and learned.figure().axes[0].get_xlabel() == "Feature"
    sizes = {**TINY, "num_hidden_layers": 6}
    near, far = position_tables(zoo.build("gemma3-style", "causal-lm", vocab_size=20, **sizes), 5)
    assert near.encoding == "rotary-by-layer (sliding_attention)" and far.encoding.endswith("(full_attention)")
    assert not np.allclose(near.values, far.values)
    (narrow,) = position_tables(zoo.build("pre-norm:embedding_size=8", "causal-lm", vocab_size=20, **TINY), 5)
    assert narrow.values.shape == (1, 5, 8)
    assert position_tables(zoo.build("pre-norm:position=none", "causal-lm", vocab_size=20, **TINY)) == []


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["d2l-style", "universal"])
def test_norms_while_training(name):
    """Recorded norms equal the trainer's, before clipping, and all hooks are removed."""
    settings = {**TINY, "dropout": 0.0}
    recorders = [NormRecorder(every=2) for _ in range(2)]
    tiny = {"settings": settings, "tokenizer": "word", "max_steps": 3, "logging_steps": 1, "warmup_steps": 0}
    for recorder, clip in zip(recorders, (1e9, 1e-3), strict=True):
        trained = zoo.train(
            name, callbacks=[recorder], max_grad_norm=clip, progress=False, use_cpu=True, generation={"max_length": 4},
            per_device_train_batch_size=8, data=few(), **tiny
        )  # fmt: skip
    first, clipped = recorders
    frame = pandas.DataFrame(first.to_records())
    assert set(frame.step) == {1, 3} and set(frame["stack"]) == {"encoder", "decoder"} and set(frame.layer) == {1, 2}
    step_one, same = frame[frame.step == 1], pandas.DataFrame(clipped.to_records()).query("step == 1")
    np.testing.assert_allclose(step_one.gradient, same.gradient, rtol=1e-5)
    total = trained.report.history[0]["grad_norm"]
    assert 0 < np.sqrt((step_one.gradient**2).sum()) < total * 1.0001
    assert step_one[step_one.layer == 2].gradient.isna().all() == (name == "universal")  # its only layer is the first
    if name == "d2l-style":  # after a layer norm that has not learnt yet
        np.testing.assert_allclose(step_one.activation, 1, rtol=1e-3)
    assert not any(layer._forward_hooks for layer in trained.model.model.decoder.layers)
    assert not any(parameter._post_accumulate_grad_hooks for parameter in trained.model.parameters())
    assert len(norms_figure(first.norms).axes) == 2


@pytest.mark.parametrize("wrong", [{"fp16": True}, {"world_size": 2}])
def test_gradients_that_are_scaled_or_not_averaged_are_not_recorded(wrong):
    arguments = SimpleNamespace(**{"fp16": False, "world_size": 1, **wrong})
    with pytest.raises(ConfigError, match="in one process"):
        NormRecorder().on_train_begin(arguments, None, None, model=None)


def few():
    from zoo.data.tasks import TASKS, Splits

    splits = TASKS.get("translation").load()
    return Splits(splits.train.select(range(24)), splits.train.select(range(24, 28)))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: norms_figure([]), "no norms were recorded"),
        (lambda: NormRecorder(every=0), "every=0 was given"),
        (lambda: logit_lens("gpt2-style.char-en", "The", top=0), "top=0 was given"),
        (lambda: position_tables(zoo.build("gpt2-style@tiny"), 0), "length=0 was given"),
        (lambda: summary("gpt2-style@tiny", batch_size=0), "batch_size=0 was given"),
        (lambda: summary("gpt2-style@tiny", seq_len=0), "seq_len=0 was given"),
        (lambda: summary("gpt2-style@tiny", depth=0), "depth=0 was given"),
    ],
)
def test_sizes_at_which_there_is_nothing_to_show_are_refused(call, message):
    with pytest.raises(ZooError, match=message):
        call()
