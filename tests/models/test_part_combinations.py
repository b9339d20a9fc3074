"""Any valid combination of settings makes a model that runs, learns, stays causal, saves and loads."""

import tempfile
from typing import Any

import pytest
import torch
import transformers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

import zoo
from zoo.models import FEED_FORWARDS, INITIALIZERS, MIXERS, NORMS, POSITIONS, RESIDUALS, TASK_CLASSES
from zoo.models.choices import AttentionScale, NormPlacement, Pooling, QKNorm, ResidualScaling
from zoo.registry import TASKS
from zoo.testing import randomize, token_ids

BUILT_IN_INITIALIZERS = [name for name in INITIALIZERS.names() if INITIALIZERS.origin(name).built_in]
LENGTH = 6


def words(enumeration: Any) -> st.SearchStrategy[str]:
    return st.sampled_from([str(member) for member in enumeration])


@st.composite
def configurations(draw: Any) -> tuple[str, dict[str, Any]]:
    """A task, and a valid setting of every axis."""
    heads = draw(st.sampled_from([1, 2, 4]))
    flags = ["mlp_bias", "attention_bias", "mlp_inner_norm", "embedding_norm", "parallel_residual", "share_layers"]
    flags += ["scale_embedding", "tie_word_embeddings", "share_encoder_decoder_embeddings", "lm_head_bias"]
    flags += ["lm_head_transform", "final_norm", "attention_out_bias"]
    chosen: dict[str, Any] = {flag: draw(st.booleans()) for flag in flags}
    chosen |= {
        "vocab_size": 23,
        "hidden_size": 16,
        "num_hidden_layers": draw(st.integers(1, 3)),
        "num_attention_heads": heads,
        "num_key_value_heads": draw(st.sampled_from([n for n in (1, 2, 4) if heads % n == 0])),
        "head_dim": draw(st.sampled_from([None, 4, 6])),
        "intermediate_size": 20,
        "max_position_embeddings": 16,
        "hidden_act": draw(st.sampled_from(["relu", "gelu", "gelu_pytorch_tanh", "silu", "relu2"])),
        "feed_forward": draw(st.sampled_from([*FEED_FORWARDS.names(), "swiglu", "geglu", "reglu"])),
        "norm": draw(st.sampled_from(NORMS.names())),
        "norm_placement": draw(words(NormPlacement)),
        "qk_norm": draw(st.none() | words(QKNorm)),
        "residual": draw(st.sampled_from(RESIDUALS.names())),
        "residual_scaling": draw(st.none() | words(ResidualScaling)),
        "position": draw(st.sampled_from([name for name in POSITIONS.names() if not POSITIONS.get(name).read_by])),
        "attention_scale": draw(words(AttentionScale) | st.just(2.0)),
        "attn_logit_softcapping": draw(st.sampled_from([None, 5.0])),
        "final_logit_softcapping": draw(st.sampled_from([None, 5.0])),
        "sliding_window": draw(st.sampled_from([None, 2])),
        "classifier_pooling": draw(words(Pooling)),
        "classifier_pooler_act": draw(st.sampled_from([None, "tanh"])),
        "initializer": draw(st.sampled_from(BUILT_IN_INITIALIZERS)),
    }
    if chosen["sliding_window"] is not None and draw(st.booleans()):
        chosen["layer_types"] = ["sliding_attention", "full_attention"][: chosen["num_hidden_layers"]]
    task = draw(st.sampled_from(list(TASKS)))
    if chosen["residual"] == "depth-weighted-average":  # for the layers of one stack, each with its own weights
        chosen |= {"residual": "plain"} if task == "seq2seq-lm" else {"share_layers": False}
    if chosen["residual"] == "no-first-norm":
        chosen["share_layers"] = False
    if task == "causal-lm" and chosen["num_hidden_layers"] > 1 and not chosen["share_layers"] and draw(st.booleans()):
        chosen["mixer"] = draw(st.sampled_from(MIXERS.names()))
        chosen.pop("layer_types", None)
    if task == "seq2seq-lm":
        chosen["decoder_layers"] = draw(st.integers(1, 2))
        chosen["decoder_vocab_size"] = (
            None if chosen["share_encoder_decoder_embeddings"] else draw(st.sampled_from([23, 29]))
        )
    return str(task), chosen


@pytest.mark.slow
@pytest.mark.parametrize("count", [30, pytest.param(120, marks=pytest.mark.nightly)])
def test_every_combination_of_parts_works(count: int) -> None:
    @settings(max_examples=count, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(configurations())
    def works(drawn: tuple[str, dict[str, Any]]) -> None:
        is_a_model(*drawn)

    works()


def is_a_model(task: str, chosen: dict[str, Any]) -> None:
    """A model with settings runs, learns, stays causal, saves and loads."""
    model = randomize(zoo.build("pre-norm", task, seed=0, dtype=torch.float64, **chosen))
    assert all(tensor.isfinite().all() for tensor in model.state_dict().values())

    inputs = {"input_ids": token_ids(2, LENGTH, 23, 0), "attention_mask": torch.ones(2, LENGTH, dtype=torch.long)}
    inputs["attention_mask"][1, -2:] = 0
    if task == "seq2seq-lm":
        inputs["decoder_input_ids"] = token_ids(2, LENGTH, 23, 1)

    def run(model: Any, **changed: Tensor) -> Tensor:
        outputs = model(**{**inputs, **changed})
        return outputs["logits" if "logits" in outputs else "last_hidden_state"]

    output = run(model)
    assert output.isfinite().all()
    (output * torch.randn(output.shape, generator=torch.Generator().manual_seed(0)).double()).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} gets no gradient"
        assert parameter.grad.isfinite().all(), f"the gradient of {name} is not finite"

    with torch.no_grad():
        # Padding is not seen.
        ids = inputs["input_ids"].clone()
        ids[1, -2:] = (ids[1, -2:] + 5) % 23
        real = output if output.ndim == 2 or task == "seq2seq-lm" else output[:, : LENGTH - 2]
        again = run(model, input_ids=ids)
        torch.testing.assert_close(again[:, : real.shape[1]], real, atol=1e-9, rtol=1e-9)
        # A decoder is causal.
        if model.config.stack != "encoder" and output.ndim == 3:
            name = "decoder_input_ids" if task == "seq2seq-lm" else "input_ids"
            changed = inputs[name].clone()
            changed[:, -1] = (changed[:, -1] + 3) % 23
            earlier = run(model, **{name: changed})[:, :-1]
            torch.testing.assert_close(earlier, output[:, :-1], atol=1e-9, rtol=1e-9)
        # A cache changes nothing.
        if task in ("causal-lm", "seq2seq-lm"):
            settings = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
            prompt = {"input_ids": inputs["input_ids"][:1], "attention_mask": inputs["attention_mask"][:1]}
            texts = [model.generate(**prompt, **settings, use_cache=use_cache).tolist() for use_cache in (True, False)]
            assert texts[0] == texts[1]
        # Saved = loaded.
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            auto_class = getattr(transformers, TASK_CLASSES[task][0])
            loaded, info = auto_class.from_pretrained(folder, dtype="auto", output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        # Where gradients are recorded, sdpa may take another kernel.
        assert torch.equal(run(loaded), run(model))
