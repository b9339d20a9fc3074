"""Residual parts, compared with transformers' own, and in variants of every kind."""

from typing import Any

import pytest
import torch
import transformers
from every_variant import in_turn
from models.formulas import THROUGH_FLOAT32, WIDTH, close, config, random, randomized, run_checks
from packaging.version import Version
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers.models.deepseek_v4.configuration_deepseek_v4 import DeepseekV4Config
from transformers.models.deepseek_v4.modeling_deepseek_v4 import DeepseekV4HyperConnection, DeepseekV4HyperHead
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpTextGatedResidual

import zoo
from zoo.models import RESIDUALS
from zoo.models.residual import build_residual

STREAMS = 3
HYPER: dict[str, Any] = {"residual": "hyper-connections", "num_streams": STREAMS, "norm_placement": "pre"}
MANIFOLD = {**HYPER, "residual": "manifold-hyper-connections", "hyper_eps": 1e-3, "sinkhorn_iterations": 4}
ELSEWHERE = ("gpt2-style:parallel_residual=true", "gemma2-style", "deepnorm", "pre-norm:share_layers=true")


CHECKED = (
    *("every_parameter_gets_a_finite_gradient", "generation_with_a_cache_equals_without"),
    *("saves_and_reloads_bit_equal", "unpadding_changes_nothing", "hidden_states_have_their_documented_shapes"),
)


class Sublayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(random(WIDTH, WIDTH, seed=9))

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight)


@pytest.mark.parametrize("name", RESIDUALS.names())
def test_what_a_connection_reports_as_added_is_what_its_forward_adds(name: str) -> None:
    """To the one vector of a token as it is, and to one of several; hyper-connections weight it for each stream."""
    settings = config(residual=name, norm_placement="sandwich", residual_scaling="layer-scale", num_hidden_layers=3)
    residual, sublayer = randomized(build_residual(settings, 1, opens_layer=True)), Sublayer()
    residual.norm_out = nn.Identity()
    stream = RESIDUALS.get(name).build_stream(settings).double().open(random(2, 5, WIDTH))
    stream = random(*stream.shape, seed=4)

    def added(output: Tensor) -> Tensor:
        branch = residual.scale(residual.norm_branch(output))
        return residual.added(residual.skip(stream), branch)

    outputs: list[Tensor] = []

    def noting(x: Tensor) -> Tensor:
        outputs.append(sublayer(x))
        return outputs[-1]

    after = residual(stream, noting)
    if stream.ndim == 3:
        close(after, residual.skip(stream) + added(outputs[0]))
        return
    changed = after - residual(stream, torch.zeros_like)
    one = (added(outputs[0]) - added(torch.zeros_like(outputs[0]))).unsqueeze(-2)
    shares = (changed * one).sum(dim=-1, keepdim=True) / (one * one).sum(dim=-1, keepdim=True)
    close(changed, (shares * one).detach())
    if name.endswith("hyper-connections"):
        assert shares.all()
    else:
        assert any(torch.allclose(shares[..., place, 0], torch.ones(2, 5).double()) for place in range(shares.shape[2]))


def test_gated_hyper_connections_equal_qwen4() -> None:
    """transformers' own part, which stores the factors of norms as differences from one."""
    settings = config(residual="gated-hyper-connections", norm_placement="none", num_streams=STREAMS, gate_rank=5)
    native_config = Qwen4ExpTextConfig(hidden_size=WIDTH, hc_count=STREAMS, hc_lowrank=5, rms_norm_eps=1e-5)
    residual, sublayer, streams = randomized(build_residual(settings)), Sublayer(), random(2, 5, STREAMS, WIDTH)
    stream = randomized(RESIDUALS.get("gated-hyper-connections").build_stream(settings))
    connection, end = (Qwen4ExpTextGatedResidual(native_config, use_combine=use).double() for use in (True, False))
    for gates, native in ((residual.gates, connection), (stream.gates, end)):
        native.hc_norm.weight.data = gates.norm.weight.data.flatten() - 1
        native.input_mix_weight_down.weight = gates.down_proj.weight
        native.input_mix_weight_up.weight = gates.up_proj.weight
    connection.block_inject_weight.weight = residual.write.weight
    read, flat, shares = connection(streams.flatten(-2))
    expected = flat.view_as(streams) + shares.unsqueeze(-1) * sublayer(read).unsqueeze(-2)
    close(residual(streams, sublayer), expected, THROUGH_FLOAT32)
    close(stream(streams), end(streams.flatten(-2)), THROUGH_FLOAT32)


@pytest.mark.skipif(Version(transformers.__version__) < Version("5.23"), reason="transformers 5.20 has no Inkling 2")
def test_attention_over_depth_equals_inkling2() -> None:
    """transformers' own part also normalises what is mixed, and divides scores by the root of the width."""
    from transformers.models.inkling2.modeling_inkling2 import Inkling2BlockAttentionResidual, Inkling2TextConfig

    ours = randomized(RESIDUALS.get("attention-residuals").build_stream(config(layer_norm_eps=1e-12)).read)
    theirs = Inkling2BlockAttentionResidual(Inkling2TextConfig(hidden_size=WIDTH))
    theirs.query.data = (ours.query * WIDTH**0.5).float()
    vectors = rms_norm(random(2, 5, 4, WIDTH), (WIDTH,))
    close(ours(vectors), theirs(vectors[..., :-1, :], vectors[..., -1, :])[0].double(), THROUGH_FLOAT32)


def test_a_new_hyper_connection_is_a_plain_residual_connection() -> None:
    hyper = zoo.build("pre-norm@tiny", "causal-lm", residual="hyper-connections", seed=0, dtype=torch.float64)
    plain = zoo.build("pre-norm@tiny", "causal-lm", seed=0, dtype=torch.float64)
    plain.load_state_dict(hyper.state_dict(), strict=False)
    ids = torch.arange(12).view(2, 6)
    hyper_states, plain_states = (
        model(ids, output_hidden_states=True).hidden_states[1].detach() for model in (hyper, plain)
    )
    close(hyper_states, plain_states.unsqueeze(-2).expand(-1, -1, 4, -1))


@pytest.mark.parametrize("iterations", [1, 4])
def test_manifold_hyper_connections_equal_deepseek_v4(iterations: int) -> None:
    settings = {**MANIFOLD, "sinkhorn_iterations": iterations, "norm": "rmsnorm"}
    residual, sublayer, streams = (
        randomized(build_residual(config(**settings))),
        Sublayer(),
        random(2, 5, STREAMS, WIDTH),
    )
    native_config = DeepseekV4Config(
        hidden_size=WIDTH, hc_mult=STREAMS, hc_sinkhorn_iters=iterations, hc_eps=1e-3, rms_norm_eps=1e-5
    )
    native = DeepseekV4HyperConnection(native_config).double()
    with torch.no_grad():
        for ours, theirs in (("weight", native.fn), ("base", native.base), ("scale", native.scale)):
            theirs.copy_(getattr(residual.weights, ours))
    post, comb, collapsed = native(streams)
    branch = sublayer(residual.norm_in(collapsed))
    expected = post.unsqueeze(-1) * branch.unsqueeze(-2) + comb.double().transpose(-1, -2) @ streams
    close(residual(streams, sublayer), expected.detach(), 1e-5)  # transformers computes weights in float32


def test_the_end_of_manifold_streams_equals_deepseek_v4() -> None:
    stream = randomized(RESIDUALS.get(MANIFOLD["residual"]).build_stream(config(**MANIFOLD)))
    native_config = DeepseekV4Config(hidden_size=WIDTH, hc_mult=STREAMS, hc_eps=1e-3, rms_norm_eps=1e-5)
    native, streams = DeepseekV4HyperHead(native_config).double(), random(2, 5, STREAMS, WIDTH)
    with torch.no_grad():
        for ours, theirs in (("weight", native.hc_fn), ("base", native.hc_base), ("scale", native.hc_scale)):
            theirs.copy_(getattr(stream.weights, ours))
    close(stream(streams), native(streams).detach(), 1e-5)


def test_streams_are_mixed_by_doubly_stochastic_matrices() -> None:
    residual = randomized(build_residual(config(**{**MANIFOLD, "sinkhorn_iterations": 60, "hyper_eps": 0.0})))
    residual.weights.scale.data /= 10
    _, _, mix = residual.weights(random(2, 5, STREAMS, WIDTH))
    for dim in (-1, -2):
        close(mix.sum(dim), torch.ones(2, 5, STREAMS), 1e-6)


def test_lambdas_equal_nanochats_loop() -> None:
    model = zoo.testing.randomize(
        zoo.build("pre-norm@tiny", "causal-lm", residual="lambdas", final_norm=False, dtype=torch.float64)
    )
    plain = zoo.build("pre-norm@tiny", "causal-lm", final_norm=False, dtype=torch.float64)
    plain.load_state_dict(model.state_dict(), strict=False)
    ids = torch.arange(12).view(2, 6)
    with torch.no_grad():
        x0 = x = model(ids, output_hidden_states=True).hidden_states[0][..., 0, :]
        for layer, other in zip(model.model.layers, plain.model.layers, strict=True):
            resid_lambda, x0_lambda = layer.self_attn_residual.mix.weight
            mask = torch.full((6, 6), -torch.inf, dtype=torch.float64).triu(1)[None, None]
            x = other(resid_lambda * x + x0_lambda * x0, mask)
        close(model.model(ids).last_hidden_state, x)


@pytest.mark.thorough
@pytest.mark.parametrize(("part", "name"), in_turn(RESIDUALS.names(), ELSEWHERE))
def test_every_residual_part_serves_every_kind_of_variant(part: str, name: str) -> None:
    if part in ("depth-weighted-average", "no-first-norm") and "share_layers" in name:
        pytest.skip("its layers differ")
    run_checks(f"{name}{',' if ':' in name else ':'}residual={part}", "causal-lm", CHECKED)
