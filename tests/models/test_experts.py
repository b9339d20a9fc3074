"""Mixtures of experts against formulas in float64, and their losses against transformers'."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from every_variant import in_turn
from models.experts_on_two import bias, routed
from models.formulas import WIDTH, close, config, random, randomized, run_checks
from preloaded import run_ranks
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F
from transformers import MixtralConfig, MixtralForCausalLM
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func

import zoo
from zoo.analysis.parameters import count_by_parameter
from zoo.base.errors import UnsupportedOperationError
from zoo.fast.captured_steps import captured_steps_of
from zoo.fast.switches import fast_paths
from zoo.models import balance_experts
from zoo.models.feed_forwards.routing import SigmoidRouter, load_balancing_loss
from zoo.models.layers import build_feed_forward
from zoo.testing import randomize

SIZES: dict[str, Any] = {
    "hidden_act": "silu",
    "mlp_bias": False,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
}
ELSEWHERE = ("vanilla", "bert-style", "normformer", "gpt2-style:parallel_residual=true", "pre-norm:share_layers=true")
CHECKED = (
    *("every_parameter_gets_a_finite_gradient", "saves_and_reloads_bit_equal"),
    *("unpadding_changes_nothing", "skipping_logits_changes_no_gradient"),
)


def part(name: str, **settings: Any) -> Any:
    made = randomized(build_feed_forward(config(feed_forward=name, **{**SIZES, **settings})))
    made.experts.config._experts_implementation = "batched_mm"
    return made


def test_clamped_experts_have_no_learned_activation() -> None:
    """Their gate does not read `hidden_act`, so it brings no parameters that nothing trains."""
    ours = part("moe-clamped", hidden_act="prelu")
    assert dict(ours.named_parameters()).keys() == dict(part("moe-clamped").named_parameters()).keys()


def test_the_first_layers_may_have_no_experts() -> None:
    model = zoo.build("mixtral-style@tiny:num_hidden_layers=3,first_k_dense_replace=2", vocab_size=20)
    kinds = [type(layer.mlp).__name__ for layer in model.model.layers]
    assert kinds == ["GatedFeedForward", "GatedFeedForward", "MixtureOfExperts"]
    assert len(model(torch.arange(6).view(2, 3), output_router_logits=True).router_logits) == 1


@pytest.mark.parametrize("bias", [False, True])
def test_every_way_to_run_experts_computes_the_formula(bias: bool) -> None:
    """Token by token: what its experts give, times the router's weights; in float32, where the grouped product is."""
    made, x = part("moe", mlp_bias=bias, mlp_inner_norm=True), random(1, 7, WIDTH)
    experts = made.experts
    expected = torch.zeros(7, WIDTH, dtype=torch.float64)
    for place, token in enumerate(x[0]):
        probabilities = (made.router.weight @ token).softmax(0)
        best = probabilities.topk(2)
        for share, expert in zip(best.values / best.values.sum(), best.indices, strict=True):
            inner = experts.gate_up_proj[expert] @ token + (experts.gate_up_proj_bias[expert] if bias else 0)
            gate, up = inner.chunk(2)
            hidden = experts.norm(gate * gate.sigmoid() * up)
            expected[place] += share * (
                experts.down_proj[expert] @ hidden + (experts.down_proj_bias[expert] if bias else 0)
            )
    for implementation in ("eager", "batched_mm", "grouped_mm"):
        experts.config._experts_implementation = implementation
        close(made(x)[0], expected.detach(), 1e-9)
        single = copy.deepcopy(made).float()
        close(single(x.float())[0].double(), expected.detach(), 1e-4)


def test_outputs_do_not_depend_on_where_weights_are_in_memory() -> None:
    sizes = {"hidden_size": 16, "num_attention_heads": 1, "intermediate_size": 20, "num_experts": 4}
    made: Any = zoo.build("gpt2-style@tiny:feed_forward=moe", "causal-lm", dtype=torch.float64, **sizes).eval()
    ids = torch.arange(1, 9)[None]
    with torch.no_grad():
        first = made(ids).logits
        for weight in made.model.layers[0].mlp.experts.parameters():
            moved = torch.empty(weight.numel() + 1, dtype=weight.dtype)[1:].view_as(weight)
            weight.data = moved.copy_(weight)
        assert torch.equal(made(ids).logits, first)


def test_widths_that_have_no_grouped_product_take_another_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """One expert after the other; in graphs, which know no numbers of tokens, a batch."""
    ran: list[str] = []
    get_interface = ALL_EXPERTS_FUNCTIONS.get_interface
    monkeypatch.setattr(
        ALL_EXPERTS_FUNCTIONS, "get_interface", lambda name, default: ran.append(name) or get_interface(name, default)
    )
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_experts": 4}
    made: Any = zoo.build("gpt2-style@tiny:feed_forward=moe", "causal-lm", intermediate_size=11, **sizes).eval()
    ids = torch.arange(10).view(2, 5)
    eager = made(ids, labels=ids).loss
    eager.backward()
    assert set(ran) == {"eager"}
    gradient = made.model.layers[0].mlp.experts.down_proj.grad.clone()
    made.zero_grad()
    made.set_experts_implementation("batched_mm")
    made(ids, labels=ids).loss.backward()
    torch.testing.assert_close(made.model.layers[0].mlp.experts.down_proj.grad, gradient)
    made.set_experts_implementation("grouped_mm")
    ran.clear()
    with FakeTensorMode(allow_non_fake_inputs=True):
        made(torch.zeros(2, 5, dtype=torch.long))
    torch.func.vmap(lambda one: made(one[None]).logits[0])(ids)
    assert set(ran) == {"batched_mm"}
    ran.clear()
    with torch.no_grad():
        made(ids)
    assert set(ran) == {"eager"}
    written = {}
    for mode in ("always", "never"):
        with fast_paths(graph_capture=mode):
            written[mode] = made.generate(ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=9)
    assert torch.equal(written["always"], written["never"])
    assert any(captured_steps_of(made).steps.values()), "experts of such a width were not captured"


def test_the_balancing_loss_equals_transformers_and_the_formula() -> None:
    logits = tuple(random(14, 6, seed=seed) for seed in (1, 2, 3))
    mask = torch.tensor([[1] * 7, [1] * 4 + [0] * 3])
    for given in (None, mask):
        theirs = load_balancing_loss_func(logits, 6, 2, given)
        close(load_balancing_loss(logits, 2, given), float(theirs), 1e-6)
    for of_queries in (mask[:, None, None].expand(-1, 1, 7, -1), {"full_attention": None}):  # name no padding
        close(load_balancing_loss(logits, 2, of_queries), float(load_balancing_loss(logits, 2)), 0)
    real = [row for layer in logits for row, kept in zip(layer, mask.flatten(), strict=True) if kept]
    share, mean = torch.zeros(6).double(), torch.zeros(6).double()
    for row in real:
        share[row.topk(2).indices] += 1 / len(real)
        mean += row.softmax(0) / len(real)
    close(load_balancing_loss(logits, 2, mask), 6 * float(share @ mean))


def test_outputs_have_what_transformers_gives() -> None:
    sizes = {"vocab_size": 37, "num_local_experts": 4, "hidden_size": 64, "intermediate_size": 128}
    native = MixtralForCausalLM(
        MixtralConfig(
            **sizes, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, router_aux_loss_coef=0.1
        )
    )
    ours = zoo.build("mixtral-style@tiny", "causal-lm", vocab_size=37, router_aux_loss_coef=0.1)
    batch = {"input_ids": torch.arange(12).view(2, 6), "labels": torch.arange(12).view(2, 6)}
    batch["attention_mask"] = torch.tensor([[1] * 6, [1] * 3 + [0] * 3])
    theirs, plain, got = (
        native(**batch, output_router_logits=True),
        ours(**batch),
        ours(**batch, output_router_logits=True),
    )
    assert [tuple(one.shape) for one in got.router_logits] == [tuple(one.shape) for one in theirs.router_logits]
    assert theirs.aux_loss.shape == got.aux_loss.shape and "aux_loss" not in plain and "router_logits" not in plain
    torch.testing.assert_close(got.loss, plain.loss + 0.1 * got.aux_loss)
    expected = load_balancing_loss_func(got.router_logits, 4, 2, batch["attention_mask"])
    torch.testing.assert_close(got.aux_loss, expected)
    ours.config.output_router_logits = True
    torch.testing.assert_close(ours(**batch).loss, got.loss)
    got.loss.backward()
    assert ours.model.layers[0].mlp.router.weight.grad.abs().max() > 0


def test_both_stacks_of_an_encoder_decoder_are_balanced() -> None:
    model = zoo.build("vanilla@tiny", "seq2seq-lm", vocab_size=37, feed_forward="moe", num_experts=4, dropout=0.0)
    batch = {"input_ids": torch.arange(12).view(2, 6), "labels": torch.arange(8).view(2, 4)}
    plain, got = model(**batch), model(**batch, output_router_logits=True)
    sides = [load_balancing_loss(logits, 2) for logits in (got.encoder_router_logits, got.decoder_router_logits)]
    torch.testing.assert_close(got.aux_loss, sum(sides))
    torch.testing.assert_close(got.loss, plain.loss + 0.001 * got.aux_loss)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_layers_of_further_tokens_are_balanced(checkpointing: bool) -> None:
    """Over the tokens that have the further one in their text."""
    settings = "num_nextn_predict_layers=2,router_aux_loss_coef=0.1,num_experts=4,num_experts_per_tok=2"
    model = randomize(zoo.build(f"mixtral-style@tiny:{settings}", vocab_size=37, seed=0), std=0.5).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids, mask = torch.arange(3, 19).view(2, 8), torch.ones(2, 8, dtype=torch.long)
    mask[1, 5:] = 0
    batch = {"input_ids": ids, "labels": ids.masked_fill(mask == 0, -100), "attention_mask": mask}
    plain, got = model(**batch), model(**batch, output_router_logits=True)
    rows = []
    for depth, logits in enumerate(got.mtp_router_logits, start=1):
        rows += [
            *logits[: 8 - depth],
            *logits[8 : 8 + 5 - depth],
        ]
    share, mean = torch.zeros(4), torch.zeros(4)
    for row in rows:
        share[row.topk(2).indices] += 1 / len(rows)
        mean += row.softmax(0) / len(rows)
    of_layers = load_balancing_loss(got.router_logits, 2, mask)
    torch.testing.assert_close(got.aux_loss, of_layers + 4 * share @ mean)
    torch.testing.assert_close(got.loss, plain.loss + 0.1 * got.aux_loss)
    gradients = {}
    for name, output in (("plain", plain), ("balanced", got)):
        model.zero_grad()
        output.loss.backward()
        gradients[name] = [depth.layer.mlp.router.weight.grad.clone() for depth in model.mtp.depths]
    assert not any(torch.equal(*both) for both in zip(*gradients.values(), strict=True))
    assert "mtp_router_logits" not in model.eval()(**batch, output_router_logits=True)


@pytest.mark.parametrize(
    ("name", "task"), [("mixtral-style@tiny", "causal-lm"), ("pre-norm@tiny:feed_forward=moe", "seq2seq-lm")]
)
def test_accumulated_batches_are_balanced_as_the_update_is(name: str, task: str) -> None:
    model = zoo.build(name, task, seed=0, vocab_size=37, router_aux_loss_coef=1.0)
    row = torch.arange(3, 9)[None]
    number = torch.tensor(4 * (5 if task == "causal-lm" else 6))
    options = {"num_items_in_batch": number, "output_router_logits": True}
    whole = model(input_ids=row.repeat(4, 1), labels=row.repeat(4, 1), **options)
    part = model(input_ids=row, labels=row, **options)
    torch.testing.assert_close(part.aux_loss, whole.aux_loss)
    torch.testing.assert_close(4 * part.loss, whole.loss)


@pytest.mark.parametrize("task", ["causal-lm", "seq2seq-lm"])
def test_labels_change_no_logits(task: str) -> None:
    """Without a mask, what follows the last label counts as padding to routers, and has its position all the same."""
    settings = {"feed_forward": "moe", "position": "learned-unpadded", "vocab_size": 37}
    model = zoo.build("pre-norm@tiny", task, seed=0, **settings)
    ids = torch.arange(3, 19).view(2, 8)
    given = {"input_ids": ids} | ({} if task == "causal-lm" else {"decoder_input_ids": ids})
    labels = ids.masked_fill(torch.arange(8) > 4, -100)
    assert torch.equal(model(**given, labels=labels).logits, model(**given).logits)


def test_a_balancing_loss_without_a_gradient_is_refused() -> None:
    ids = torch.arange(3, 19).view(2, 8)
    model = zoo.build("mixtral-style@tiny", vocab_size=32, seed=0).train()
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    model(input_ids=ids, labels=ids).loss.backward()  # without that loss
    with pytest.raises(UnsupportedOperationError, match="no gradient .*'use_reentrant': False"):
        model(input_ids=ids, labels=ids, output_router_logits=True)
    with torch.no_grad():
        assert model(input_ids=ids, labels=ids, output_router_logits=True).aux_loss > 0
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    assert model(input_ids=ids, labels=ids, output_router_logits=True).aux_loss.requires_grad


def test_balancing_moves_the_bias_towards_experts_that_are_used_less() -> None:
    model = randomize(zoo.build("deepseek-moe@tiny", "causal-lm", vocab_size=37, balance_rate=0.01), std=0.5).train()
    ids = torch.arange(36).view(2, 18)
    router = model.model.layers[0].mlp.router
    model(ids)
    load = router.load.float()
    assert load.sum() == 2 * 18 * 2
    balance_experts(model)
    torch.testing.assert_close(router.balance_bias, 0.01 * (load.mean() - load).sign())
    assert not router.load.any()

    def unevenness() -> float:
        model(ids)
        found = router.load.float()
        return float(found.max() / found.mean())

    before = unevenness()
    for _ in range(100):
        balance_experts(model)
        after = unevenness()
    assert after < before


@pytest.mark.slow
def test_processes_of_ddp_add_up_the_tokens_of_accumulated_batches(tmp_path: Path) -> None:
    model, ids = routed()
    for batch in ids.flatten(0, 1):
        model(input_ids=batch, labels=batch)
    run_ranks(2, [str(Path(__file__).with_name("experts_on_two.py")), str(tmp_path / "bias.pt")])
    assert torch.equal(torch.load(tmp_path / "bias.pt"), bias(model))


def test_tokens_are_counted_exactly_in_16_bits() -> None:
    model = zoo.build("deepseek-moe@tiny", vocab_size=37, seed=0, dtype=torch.bfloat16).train()
    for _ in range(3):
        model(torch.randint(5, 37, (9, 37)))
    routers = [module for module in model.modules() if isinstance(module, SigmoidRouter)]
    assert {int(router.load.sum()) for router in routers} == {3 * 9 * 37 * routers[0].num_experts_per_tok}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_balancing_biases_stay_precise_in_16_bits(dtype: torch.dtype, tmp_path: Path) -> None:
    name = "model.layers.0.mlp.router.balance_bias"
    model = zoo.build("deepseek-moe@tiny", vocab_size=37, seed=0, dtype=dtype).train()
    router = model.model.layers[0].mlp.router
    router.balance_bias.fill_(0.5)
    router.load[0] = 1
    balance_experts(model)
    wanted = torch.full((router.num_experts,), 0.5).add(0.001 * (1 - 2 * (torch.arange(router.num_experts) == 0)))
    assert torch.equal(model.to(dtype).cpu().get_buffer(name), wanted)
    assert model.double().get_buffer(name).dtype == torch.float64
    assert torch.equal(model.to(dtype).get_buffer(name), wanted)
    model.save_pretrained(tmp_path)
    for loaded in (zoo.load(tmp_path), type(model).from_pretrained(tmp_path, dtype=dtype), copy.deepcopy(model)):
        assert torch.equal(loaded.get_buffer(name), wanted) and loaded.dtype == dtype
    assert zoo.load(tmp_path, dtype=torch.float64).get_buffer(name).dtype == torch.float64


@pytest.mark.parametrize("feed_forward", ["moe", "moe-sigmoid"])
@pytest.mark.parametrize("name", ["llama-style@tiny", "llama-style@tiny:num_nextn_predict_layers=1", "pre-norm@tiny"])
def test_padding_of_packed_rows_and_of_targets_counts_for_no_expert(name: str, feed_forward: str) -> None:
    """They have no attention mask: the end of a row without labels is padding."""
    packs = name.startswith("llama")
    sizes = {"vocab_size": 37, "feed_forward": feed_forward, "dropout": 0.0, "attention_dropout": 0.0}
    model = randomize(zoo.build(name, "causal-lm" if packs else "seq2seq-lm", **sizes), std=0.5).train()
    ids, labels = torch.randint(5, 37, (2, 2, 6), generator=torch.Generator().manual_seed(0))

    def balanced(padding: int) -> list[torch.Tensor]:
        given = {"input_ids": ids, "labels": F.pad(labels, (0, padding), value=-100)}
        if packs:
            places = torch.cat((torch.arange(2), torch.arange(4), torch.arange(padding)))
            given |= {"input_ids": F.pad(ids, (0, padding)), "position_ids": places.expand(2, -1)}
            given["shift_labels"] = given["labels"]
        output = model(**given, output_router_logits=True)
        loads = [module.load.clone() for module in model.modules() if isinstance(module, SigmoidRouter)]
        balance_experts(model)
        for module in model.modules():
            if isinstance(module, SigmoidRouter):
                module.balance_bias.zero_()
        return [output.loss, *loads, *([output.aux_loss] if feed_forward == "moe" else [])]

    torch.testing.assert_close(balanced(9), balanced(0))
    options = {"num_items_in_batch": torch.tensor(1), "output_router_logits": True}
    assert model(input_ids=ids, labels=torch.full_like(labels, -100), **options).loss == 0


@pytest.mark.parametrize("settings", ["", ",num_nextn_predict_layers=2", ",parallel_residual=true"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_padding_counts_for_no_expert(settings: str, checkpointing: bool) -> None:
    """Padding or none, taken out or left in: tokens alone are counted, twice where layers are computed again."""
    name = f"deepseek-moe@tiny:dropout=0.0,attention_dropout=0.0,num_experts=4{settings}"
    model = randomize(zoo.build(name, "causal-lm", vocab_size=37), std=0.5).train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    ids = torch.randint(5, 37, (4, 16), generator=torch.Generator().manual_seed(0))
    lengths, places = torch.tensor([7, 3, 5, 10]), torch.arange(16)
    on_the_right, on_the_left = places < lengths[:, None], places >= 16 - lengths[:, None]
    routers = [module for module in model.modules() if isinstance(module, SigmoidRouter)]

    def loads(batches: list[dict[str, torch.Tensor]], mode: str) -> list[list[float]]:
        with fast_paths(unpadding=mode):
            for batch in batches:
                model(**batch, use_cache=False).loss.backward()
        found = [router.load.tolist() for router in routers]
        balance_experts(model)
        for router in routers:
            router.balance_bias.zero_()
        return found

    rows = [ids[row, :length][None] for row, length in enumerate(lengths)]
    expected = loads([{"input_ids": row, "labels": row} for row in rows], "never")
    assert sum(expected[0]) == lengths.sum() * 2 * (1 + checkpointing)
    for mask in (on_the_right, on_the_left):
        padded = torch.full_like(ids, 3)
        padded[mask] = ids[on_the_right]
        batch = {"input_ids": padded, "attention_mask": mask.long(), "labels": padded.masked_fill(~mask, -100)}
        for mode in ("never", "auto", "always"):
            assert loads([batch], mode) == expected, mode


@pytest.mark.parametrize("causal_rows", [None, [True, False]])
def test_padding_of_a_short_block_counts_for_no_expert(causal_rows: list[bool] | None) -> None:
    model = zoo.build("gpt-bert-style@tiny:feed_forward=moe-sigmoid", "masked-lm", vocab_size=37, seed=0).train()
    ids, mask = torch.arange(3, 23).view(2, 10), torch.ones(2, 10, dtype=torch.long)
    mask[1, 4:] = 0
    rows = {} if causal_rows is None else {"causal_rows": torch.tensor(causal_rows)}
    model(ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100), **rows)
    routers = [module for module in model.modules() if isinstance(module, SigmoidRouter)]
    assert {int(router.load.sum()) for router in routers} == {14 * routers[0].num_experts_per_tok}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("part_name", "name"),
    in_turn(["moe", "moe-shared", "moe-sigmoid", "moe-sigmoid,n_shared_experts=0"], ELSEWHERE),
)
def test_experts_serve_every_kind_of_variant(part_name: str, name: str) -> None:
    settings = f"feed_forward={part_name},num_experts=4,hidden_act=silu"
    task = {"vanilla": "seq2seq-lm", "bert-style": "masked-lm"}.get(name, "causal-lm")
    run_checks(f"{name}{',' if ':' in name else ':'}{settings}", task, CHECKED)


@pytest.mark.parametrize(
    "initializer", ["normal", "depth-scaled", "layer-scaled", "xavier-uniform", "deepnorm", "torch", "t5"]
)
def test_every_initialisation_reaches_experts(initializer: str) -> None:
    """Experts start as linear layers of their sizes do."""
    settings = {"initializer": initializer, "seed": 0, "feed_forward": "gated", "hidden_act": "silu"}
    dense = zoo.build("pre-norm@tiny", "causal-lm", **settings).model.layers[0].mlp
    sparse = zoo.build("pre-norm@tiny", "causal-lm", **{**settings, "feed_forward": "moe"}).model.layers[0].mlp.experts
    for ours, like in ((sparse.gate_up_proj, dense.up_proj), (sparse.down_proj, dense.down_proj)):
        assert ours.std().item() == pytest.approx(like.weight.std().item(), rel=0.03)
    assert not sparse.gate_up_proj_bias.any() and not sparse.down_proj_bias.any()


def test_active_parameters_are_those_of_the_experts_that_a_token_sees() -> None:
    table = count_by_parameter("mixtral-style@tiny")
    experts = sum(row.count for row in table.rows if ".experts." in row.name)
    assert table.active == table.total - experts // 2
    dense = count_by_parameter("llama-style@tiny")
    assert dense.active == dense.total
