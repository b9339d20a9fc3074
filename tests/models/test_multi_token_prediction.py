"""Tokens after the next one, predicted in training: the loss against the paper's formula, and what stays as it is."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.analysis.measuring.flops import count_flops
from zoo.converters.planning import plan_engines, plan_export
from zoo.fast.switches import fast_paths
from zoo.models import ZooPreTrainedModel
from zoo.models.context import EarlierLayers
from zoo.registry import list_variants
from zoo.testing import randomize

SIZES = "vocab_size=23,num_hidden_layers=2,dropout=0.0"
DEPTH = 2
WEIGHT = 0.5
MANY = f"llama-style@tiny:num_nextn_predict_layers={DEPTH},mtp_loss_weight={WEIGHT},{SIZES}"
ANY = [name for name in list_variants(task="causal-lm") if name not in ("value-residual", "gpt-bert-style")]


def build(name: str = MANY) -> ZooPreTrainedModel:
    return randomize(zoo.build(name, "causal-lm", seed=0, dtype=torch.float64)).train()


def token_ids(batch_size: int = 2, length: int = 7) -> Tensor:
    return torch.randint(3, 23, (batch_size, length), generator=torch.Generator().manual_seed(1))


def rms(weight: Tensor, x: Tensor, eps: float) -> Tensor:
    return weight * x / (x.pow(2).mean() + eps).sqrt()


def by_hand(model: Any, ids: Tensor, loss_smoothing: float, z_loss: float) -> Tensor:
    """DeepSeek-AI 2024, equations 21 to 25, token by token for one sequence, with smoothed labels and z-loss."""
    eps, length = model.config.layer_norm_eps, len(ids)
    states = list(model.model(ids[None]).last_hidden_state[0])
    total = torch.zeros((), dtype=torch.float64)
    for k, depth in enumerate(model.mtp.depths, start=1):
        read = torch.stack(
            [
                depth.projection.weight
                @ torch.cat(
                    [
                        rms(depth.state_norm.weight, states[i], eps),
                        rms(depth.token_norm.weight, model.model.embed_tokens.weight[ids[i + k]], eps),
                    ]
                )
                for i in range(length - k)
            ]
        )
        places = torch.arange(length - k)
        rotation = model.model.position.rotations(read[None], places[None], ["full_attention"])["full_attention"]
        mask = torch.ones(length - k, length - k).tril().bool()[None, None]
        transformed = depth.layer(read[None], mask, position_embeddings=rotation, earlier=EarlierLayers())[0]
        states = [rms(depth.norm.weight, x, eps) for x in transformed]
        for i in range(length - k - 1):
            logits = model.lm_head.weight @ states[i]
            wanted = (1 - loss_smoothing) * logits[ids[i + k + 1]] + loss_smoothing * logits.mean()
            total = total + (logits.logsumexp(0) - wanted + z_loss * logits.logsumexp(0) ** 2) / (length - 1)
    return total / DEPTH


@pytest.mark.parametrize("options", [{"loss_smoothing": 0.0, "z_loss": 0.0}, {"loss_smoothing": 0.2, "z_loss": 0.1}])
def test_the_loss_is_the_papers(options: dict[str, float]) -> None:
    model, ids = build(), token_ids(1)
    trained, evaluated = model(ids, labels=ids, **options), model.eval()(ids, labels=ids, **options)
    torch.testing.assert_close(trained.mtp_loss.double(), by_hand(model, ids[0], **options), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(trained.loss, evaluated.loss + WEIGHT * trained.mtp_loss)
    torch.testing.assert_close(trained.logits, evaluated.logits)
    assert "mtp_loss" not in evaluated and "mtp_loss" not in model.train()(ids)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("backend", ["sdpa", "eager"])
def test_padding_and_packed_documents_change_nothing(side: str, backend: str) -> None:
    model, ids = build(), token_ids(1)
    model.set_attn_implementation(backend)
    alone = model(ids, labels=ids).mtp_loss
    labels = ids.clone()
    labels[:, 0] = -100  # which a padded row would predict of padding
    pad, ignored, real = torch.zeros(1, 3, dtype=torch.long), torch.full((1, 3), -100), torch.ones_like(ids)
    order = slice(None, None, -1 if side == "left" else 1)
    padded = [torch.cat([own, rest][order], dim=1) for own, rest in ((ids, pad), (labels, ignored), (real, pad))]
    torch.testing.assert_close(model(padded[0], attention_mask=padded[2], labels=padded[1]).mtp_loss, alone)
    places = torch.arange(ids.shape[1])[None]
    twice = {"input_ids": torch.cat([ids, ids], dim=1), "position_ids": torch.cat([places, places], dim=1)}
    packed = model(**twice, labels=torch.cat([labels, labels], dim=1)).mtp_loss
    torch.testing.assert_close(packed, alone)


def gradients(model: ZooPreTrainedModel, **given: Any) -> dict[str, Tensor]:
    model.zero_grad()
    output = model(**given)
    output.loss.backward()
    return {"loss": output.loss.detach(), **{name: p.grad for name, p in model.named_parameters()}}


def test_every_way_to_the_loss_gives_the_same_gradients() -> None:
    """Without logits, a chunk of tokens at a time; recomputing layers; from embeddings; in accumulated batches."""
    model, ids = build(), token_ids()
    labels = ids.clone()
    labels[0, -3:] = -100
    expected = gradients(model, input_ids=ids, labels=labels)
    assert all(gradient is not None and gradient.isfinite().all() for gradient in expected.values())
    with fast_paths(chunked_loss="always"):
        chunked = gradients(model, input_ids=ids, labels=labels, skip_logits=True)
    count = (labels[:, 1:] != -100).sum()
    halves = [
        gradients(model, input_ids=ids[i : i + 1], labels=labels[i : i + 1], num_items_in_batch=count) for i in (0, 1)
    ]
    summed = {name: halves[0][name] + halves[1][name] for name in expected}
    with torch.no_grad():
        embedded = model.get_input_embeddings()(ids)
    given = gradients(model, inputs_embeds=embedded, labels=labels)
    given["model.embed_tokens.weight"] = expected["model.embed_tokens.weight"]
    for reentrant in (False, True):
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
        found = gradients(model, input_ids=ids, labels=labels)
        torch.testing.assert_close(found, expected, msg=f"recomputed, reentrant: {reentrant}")
    for found in (chunked, summed, given):
        torch.testing.assert_close(found, expected)


def test_what_was_saved_trains_on_and_writes_the_same(tmp_path: Path) -> None:
    model, ids = build(), token_ids(1)
    model.save_pretrained(tmp_path)
    loaded = zoo.load(tmp_path).double().train()
    assert loaded.config.num_nextn_predict_layers == DEPTH
    torch.testing.assert_close(loaded(ids, labels=ids).loss, model(ids, labels=ids).loss)
    plain = zoo.build(f"llama-style@tiny:{SIZES}", dtype=torch.float64)
    plain.load_state_dict({name: value for name, value in model.state_dict().items() if not name.startswith("mtp.")})
    written = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    assert torch.equal(model.eval().generate(ids, **written), plain.generate(ids, **written))


@pytest.mark.slow
def test_it_compiles_into_one_graph() -> None:
    model, ids = build(), token_ids()
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids, labels=ids).loss, model(ids, labels=ids).loss)
    routed = build(f"{MANY},feed_forward=moe,output_router_logits=true,router_aux_loss_coef=1.0")
    expected = routed(ids, labels=ids).aux_loss  # installs the hooks of transformers, which no graph does
    compiled = torch.compile(routed, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids, labels=ids).aux_loss, expected)


@pytest.mark.thorough
def test_operations_are_counted_in_training_only() -> None:
    """A depth costs a projection of two vectors onto one, a layer, and the output projection."""
    batch = {"input_ids": token_ids()}
    with_depths, without = (count_flops(zoo.build(name), batch) for name in (MANY, f"llama-style@tiny:{SIZES}"))
    deeper = count_flops(zoo.build(f"llama-style@tiny:{SIZES}", num_hidden_layers=4), batch)
    width, tokens = 64, batch["input_ids"].numel()
    assert with_depths.forward == without.forward
    more = DEPTH * 3 * 2 * tokens * width * (2 * width + 23)
    assert with_depths.training - without.training == deeper.training - without.training + more


def test_exports_leave_it_out_with_a_note(tmp_path: Path) -> None:
    model = build().float().eval()
    report = zoo.export(model, tmp_path / "llama", "llama", fresh_process=False)
    note = "The modules of num_nextn_predict_layers=2, which only train, are left out."
    assert report.notes.count(note) == 1
    (plan,) = plan_export(model, ["llama"])
    assert plan.exact and note in plan.notes
    assert {plan.target for plan in plan_engines(model) if note not in plan.notes} == {"bundle"}
    assert model.config.num_nextn_predict_layers == DEPTH and model.mtp is not None


@pytest.mark.thorough
@pytest.mark.parametrize("name", ANY)
def test_every_decoder_learns_of_further_tokens(name: str) -> None:
    """Padding on the right changes nothing, and every parameter gets a gradient."""
    settings = {"num_nextn_predict_layers": 1, "vocab_size": 23, "dropout": 0.0, "attention_dropout": 0.0}
    model = zoo.build(f"{name}@tiny", "causal-lm", seed=0, **settings)
    ids = token_ids(1, 6)
    alone = model.train()(ids, labels=ids)
    alone.loss.backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None and name.startswith("mtp.")]
    assert not [name for name in missing if "experts" not in name]
    padded, labels = (torch.nn.functional.pad(ids, (0, 3), value=value) for value in (0, -100))
    mask = (labels != -100).long()
    torch.testing.assert_close(model(padded, attention_mask=mask, labels=labels).mtp_loss, alone.mtp_loss)
