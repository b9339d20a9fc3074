"""What mixes tokens without attention: against formulas and transformers' own modules, and under a variant's suite."""

from typing import Any

import pytest
import torch
import transformers
from models.formulas import LENGTH, THROUGH_FLOAT32, WIDTH, close, config, random, randomized
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache
from transformers.models.olmo_hybrid.modeling_olmo_hybrid import OlmoHybridGatedDeltaNet

import zoo
from zoo.base.errors import ConfigError, InputError
from zoo.models import MIXERS, Mixer, ShortConvolution
from zoo.models.layers import build_mixer
from zoo.models.mixers.delta_rule import channel_gated_delta_rule, gated_delta_rule

NAMES = ("gated-delta-net", "kimi-delta-attention", "short-conv")
DECODER: dict[str, Any] = {"is_decoder": True, "num_hidden_layers": 2, "norm": "rmsnorm"}
DELTA: dict[str, Any] = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 5,
    "linear_value_head_dim": 6,
}
CONV = {"mixer": "short-conv"}
IDS = torch.arange(3, 17).view(2, 7)


def small(mixer: str, **settings: Any) -> Any:
    return zoo.build(f"llama-style@tiny:mixer={mixer},vocab_size=20", "causal-lm", dtype=torch.float64, **settings)


def rule_by_tokens(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, strength: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """Kimi Linear, equation 1, one token after the other; one head. With one rate a token, Gated Delta Networks."""
    read = []
    for q, k, v, g, b in zip(query, key, value, decay, strength, strict=True):
        decayed = g.exp().expand(len(k))[:, None] * state
        state = decayed - b * torch.outer(k, k @ decayed) + b * torch.outer(k, v)
        read.append(q @ state)
    return torch.stack(read), state


@pytest.mark.parametrize("rule", [gated_delta_rule, channel_gated_delta_rule])
@pytest.mark.parametrize("seq_len", [1, 7, 64, 150])
def test_chunks_equal_the_recurrence(seq_len: int, rule: Any) -> None:
    query, value = random(1, 2, seq_len, 5), random(1, 2, seq_len, 3, seed=2)
    key = F.normalize(random(1, 2, seq_len, 5, seed=3), dim=-1)
    channels = () if rule is gated_delta_rule else (5,)
    decay, strength = -random(1, 2, seq_len, *channels, seed=4).exp(), random(1, 2, seq_len, seed=5).sigmoid()
    before = random(1, 2, 5, 3, seed=6)
    read, after = rule(query, key, value, decay, strength, before)
    for head in range(2):
        arguments = (tensor[0, head] for tensor in (query, key, value, decay, strength, before))
        expected, state = rule_by_tokens(*arguments)
        close(read[0, head], expected)
        close(after[0, head], state)


def assert_same_outputs(ours: Any, theirs: Any, of_theirs: Any) -> None:
    """Of whole texts, with padding too, and of one piece after the other."""
    states = random(2, LENGTH, WIDTH)
    close(ours(states)[0], theirs(states), THROUGH_FLOAT32)
    mask = torch.tensor([[1] * LENGTH, [0] * 2 + [1] * (LENGTH - 2)])
    close(ours(states, mask)[0][mask.bool()], theirs(states, attention_mask=mask)[mask.bool()], THROUGH_FLOAT32)
    cache = DynamicCache(config=of_theirs)
    pieces = torch.cat([ours(one, past_key_values=cache)[0] for one in states.split([3, 1, 2, 1], dim=1)], dim=1)
    close(pieces, ours(states)[0])


@pytest.mark.parametrize("negative", [False, True])
def test_gated_delta_net_equals_olmo_hybrid(negative: bool) -> None:
    """transformers' own module, with separate projections; whole texts, and one token after the other."""
    settings = {**DELTA, "linear_conv_kernel_dim": 3, "linear_allow_neg_eigval": negative}
    ours = randomized(build_mixer(config(**DECODER, **settings, mixer="gated-delta-net"), 0, is_causal=True))
    of_theirs = transformers.OlmoHybridConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, hidden_act="silu",
        layer_types=["linear_attention", "full_attention"], **settings,
    )  # fmt: skip
    theirs = OlmoHybridGatedDeltaNet(of_theirs, 0).double()
    names = {
        "in_proj_z": "g_proj",
        "in_proj_b": "b_proj",
        "in_proj_a": "a_proj",
        "norm": "o_norm",
        "out_proj": "o_proj",
    }
    state = {}
    for name, tensor in ours.state_dict().items():
        module, _, kind = name.rpartition(".")
        state[f"{names.get(module, module)}.{kind}".lstrip(".")] = tensor
    sides = state.pop("in_proj_qkv.weight").split([10, 10, 24])
    theirs.load_state_dict(state | {f"{p}_proj.weight": side for p, side in zip("qkv", sides, strict=True)})
    assert_same_outputs(ours, theirs, of_theirs)


def test_what_is_forgotten_at_once_overflows_nothing() -> None:
    """Decays with inverses that no float holds, as quotients of products over a chunk would need them."""
    tensors = [random(1, 1, 40, 4, seed=seed).requires_grad_() for seed in range(3)]
    decay = torch.full((1, 1, 40, 4), -60.0, dtype=torch.float64, requires_grad=True)
    strength = torch.full((1, 1, 40), 0.5, dtype=torch.float64)
    read, _ = channel_gated_delta_rule(*tensors, decay, strength)
    gradients = torch.autograd.grad(read.sum(), [*tensors, decay])
    assert all(torch.isfinite(tensor).all() for tensor in (read, *gradients))
    query, key, value = tensors  # every token reads what it has written, and nothing else
    close(read, 0.5 * (query * key).sum(-1, keepdim=True) * value)


@pytest.mark.parametrize("bias", [False, True])
def test_a_short_convolution_is_a_filter_for_each_channel(bias: bool) -> None:
    """Over a token and the three before it."""
    settings = {"conv_L_cache": 4, "conv_bias": bias}
    ours = randomized(build_mixer(config(**DECODER, **settings, mixer="short-conv"), 0, is_causal=True))
    states = random(2, LENGTH, WIDTH)
    before, after, values = (states @ ours.in_proj.weight.T + (ours.in_proj.bias if bias else 0)).chunk(3, dim=-1)
    gated = F.pad(before * values, (0, 0, 3, 0))
    seen = sum(gated[:, i : i + LENGTH] * ours.conv.weight[:, 0, i] for i in range(4)) + (ours.conv.bias if bias else 0)
    close(ours(states)[0], after * seen @ ours.out_proj.weight.T + (ours.out_proj.bias if bias else 0), 1e-10)


@pytest.mark.parametrize("mixer", NAMES)
def test_a_text_continues_with_gradients_and_behind_inference_mode(mixer: str) -> None:
    model = small(mixer)
    whole = model(IDS).logits
    with torch.inference_mode():
        read = model(IDS[:, :3], use_cache=True).past_key_values
    with torch.no_grad():
        pieces = [model(IDS[:, 3:5], past_key_values=read).logits]
    first = model(IDS[:, :4], use_cache=True)
    pieces += [model(IDS[:, at : at + 1], past_key_values=first.past_key_values).logits for at in (4, 5, 6)]
    close(torch.cat(pieces, dim=1), torch.cat([whole[:, 3:5], whole[:, 4:]], dim=1), 1e-10)
    names, parameters = zip(*model.named_parameters(), strict=True)
    at_once = torch.autograd.grad(whole.square().sum(), parameters)
    in_pieces = torch.autograd.grad(torch.cat([first.logits, *pieces[1:]], dim=1).square().sum(), parameters)
    for name, one, other in zip(names, at_once, in_pieces, strict=True):
        torch.testing.assert_close(one, other, atol=1e-8, rtol=1e-8, msg=name)


@pytest.mark.parametrize("mixer", NAMES)
def test_a_cache_that_can_be_cropped_reads_padded_texts(mixer: str) -> None:
    model, mask = small(mixer), torch.ones_like(IDS)
    mask[0, :3] = 0
    cache = DynamicCache(config=model.config)
    cache.activate_past_recording()
    with torch.no_grad():
        expected = model(IDS, attention_mask=mask, use_cache=False).logits
        found = [model(IDS[:, :5], attention_mask=mask[:, :5], past_key_values=cache).logits]
        if mixer == "short-conv":  # other states cannot be put back
            model(IDS[:, :2], attention_mask=mask, past_key_values=cache)
            cache.crop(-2)
        found.append(model(IDS[:, 5:], attention_mask=mask, past_key_values=cache).logits)
    torch.testing.assert_close(torch.cat(found, dim=1)[mask.bool()], expected[mask.bool()])


@pytest.mark.parametrize("mixer", NAMES)
@pytest.mark.parametrize("window", [None, 4])
def test_padded_prompts_are_read_in_pieces_into_a_static_cache(mixer: str, window: int | None) -> None:
    """transformers makes the mask of a state's layer for the tokens that are read, and others for all cached ones."""
    model, mask = small(mixer, sliding_window=window, seed=0), torch.ones_like(IDS)
    mask[0, :2] = 0
    given: dict[str, Any] = {"attention_mask": mask, "max_new_tokens": 5, "min_new_tokens": 5, "pad_token_id": 0}
    static = {"cache_implementation": "static", "disable_compile": True, "prefill_chunk_size": 3}
    assert torch.equal(model.generate(IDS, **given, **static), model.generate(IDS, **given, use_cache=False))


def test_what_a_state_cannot_do_is_refused() -> None:
    model = small("gated-delta-net")
    with pytest.raises(InputError, match="packs several documents into it, but past_key_values holds one a row"):
        places = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])
        model(IDS, position_ids=places, past_key_values=DynamicCache(config=model.config))
    with pytest.raises(InputError, match="an attention_mask of 4 dimensions was given"):
        model(IDS, attention_mask=torch.zeros(2, 1, 7, 7, dtype=torch.float64))
    with pytest.raises(InputError, match=r"without a state for layer 0.*DynamicCache\(config=model.config\)"):
        model(IDS, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="assisted generation is not supported with stateful models"):
        model.generate(IDS[:1], prompt_lookup_num_tokens=2, max_new_tokens=3)


@pytest.mark.parametrize("mixer", ["gated-delta-net", "kimi-delta-attention"])
def test_a_memory_is_not_cropped(mixer: str) -> None:
    """transformers crops the states of convolutions, and leaves the memory as it is."""
    model, cache = small(mixer, seed=0).eval(), DynamicCache(config=small(mixer).config)
    cache.activate_past_recording()
    with torch.no_grad():
        model(IDS, past_key_values=cache)
    cache.crop(0)
    with pytest.raises(InputError, match="a cache with a memory gives no tokens back: read the text again"):
        cache.crop(-2)
    with pytest.raises(InputError, match="or give another assistant"):
        zoo.build("llama-style@tiny:vocab_size=20", seed=1).generate(IDS[:1], assistant_model=model, max_new_tokens=9)


def test_a_plugin_adds_a_mixer_to_every_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MIXERS, "_items", dict(MIXERS._items))

    @MIXERS.register("before")
    class Before(ShortConvolution):
        """The tokens before, as they are."""

        def mix(self, hidden_states: Tensor, past: Any, is_token: Tensor | None = None) -> Tensor:
            return super().mix(hidden_states, past, is_token) + hidden_states

    model = zoo.build("gpt2-style@tiny:mixer=before,conv_L_cache=2,vocab_size=20", "causal-lm")
    assert type(model.model.layers[0].self_attn) is Before
    assert model.generate(IDS, max_new_tokens=2, do_sample=False).shape == (2, 9)


def test_a_mixer_without_a_type_of_layer_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MIXERS, "_items", dict(MIXERS._items))
    MIXERS.register("untyped")(type("Untyped", (Mixer,), {"__doc__": "Without layers of its own."}))
    with pytest.raises(ConfigError, match="class Untyped lacks a layer_type: 'linear_attention' or 'conv'"):
        zoo.build("gpt2-style@tiny:mixer=untyped")


@pytest.mark.parametrize("mixer", [*NAMES, "short-conv,conv_bias=True"])
@pytest.mark.parametrize("packs", [False, True])
def test_gradients_of_gaps_and_packed_documents_are_those_of_single_texts(mixer: str, packs: bool) -> None:
    model = small(mixer).train()
    mask = torch.tensor([[0, 1, 1, 0, 1, 1, 0], [1, 1, 0, 0, 1, 0, 1]])
    places = (
        torch.tensor([[0, 1, 2, 0, 1, 2, 3], [0, 0, 1, 2, 3, 4, 5]]) if packs else (mask.cumsum(1) - 1).clamp(min=0)
    )
    together = model(IDS, attention_mask=None if packs else mask, position_ids=places, use_cache=False).logits
    if packs:
        texts = [*IDS[0].split([3, 4]), *IDS[1].split([1, 6])]
    else:
        together, texts = together[mask.bool()], [row[real] for row, real in zip(IDS, mask.bool(), strict=True)]
    alone = torch.cat([model(text[None], use_cache=False).logits[0] for text in texts])
    parameters = tuple(model.parameters())
    one, other = (torch.autograd.grad(logits.square().sum(), parameters) for logits in (together, alone))
    for (name, _), mine, theirs in zip(model.named_parameters(), one, other, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-8, rtol=1e-8, msg=name)


@pytest.mark.slow
def test_packed_documents_stay_apart_where_the_model_is_compiled() -> None:
    model = small("gated-delta-net")
    given = {"position_ids": torch.tensor([[0, 1, 2, 0, 1, 2, 3]]), "use_cache": False}
    compiled = torch.compile(model, backend="eager")(IDS, **given).logits
    close(compiled[:, 3:], model(IDS[:, 3:]).logits)
    torch.compiler.reset()
    whole = torch.compile(model, backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="a state restarts where position_ids do"):
        whole(IDS, **given)
    close(whole(IDS, use_cache=False).logits, model(IDS).logits)
