"""Two processes hold one model: tensor parallel, and fully sharded."""

import copy
import json

import pytest
import torch
from torch import multiprocessing, nn
from transformers_citizen import processes
from transformers_citizen.support import ASSORTED, ONE_OF_EACH, enough_over, tiny

import zoo
from zoo.models import ATTENTIONS
from zoo.models.parallel import fully_sharded_plan, pipeline_parallel_plan, tensor_parallel_plan

EXPERTS = (("mixtral-style", "causal-lm"), ("deepseek-moe", "causal-lm"))
FURTHER = ("llama-style:num_nextn_predict_layers=2", "causal-lm")
SLICED = (*ONE_OF_EACH, ("qk-norm", "causal-lm"), ("olmo2-style", "causal-lm"), ("t5-style", "seq2seq-lm"), *EXPERTS)
SLICED += (FURTHER,)
GATHERED = (*ONE_OF_EACH, ("universal", "seq2seq-lm"), ("gpt2-style", "causal-lm"), FURTHER)


pytestmark = pytest.mark.xdist_group("parallel")  # one pair of processes serves many tests


@pytest.fixture(scope="module")
def verdicts(request, tmp_path_factory) -> dict[str, dict[str, dict]]:
    """What two processes found out about models, by kind and model: one of each, or the others."""
    found = {}
    # One server imports what all processes need; they are forks of it, which has computed nothing.
    multiprocessing.set_forkserver_preload(["torch.distributed.tensor", "transformers.modeling_utils", "zoo.models"])
    for kind, every in (("tp", SLICED), ("fsdp", GATHERED)):
        pairs = [pair for pair in every if (pair in ONE_OF_EACH) is request.param]
        folder = tmp_path_factory.mktemp(kind)
        for pair in pairs:
            subject = tiny(pair)
            model = subject.rebuilt(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
            model.save_pretrained(folder / pair[0])
            torch.save({**subject.inputs(), "labels": subject.labels()}, folder / pair[0] / "inputs.pt")
        rendezvous = tmp_path_factory.mktemp("rendezvous") / kind
        multiprocessing.start_processes(
            processes.compare, args=(2, str(rendezvous), str(folder), kind), nprocs=2, start_method="forkserver"
        )
        found[kind] = {
            path.name: json.loads((path / f"verdict-{kind}.json").read_text()) for path in sorted(folder.iterdir())
        }
    return found


def in_two_processes(pairs: tuple[tuple[str, str], ...]) -> pytest.MarkDecorator:
    """Run a test on what two processes found out about every pair; one of each family every time, the rest at night."""
    params = [
        pytest.param(
            pair,
            pair in ONE_OF_EACH,
            id="-".join(pair),
            marks=pytest.mark.slow if pair in ONE_OF_EACH else [pytest.mark.slow, pytest.mark.nightly],
        )
        for pair in pairs
    ]
    # Without a scope, pytest would start new processes for every pair.
    return pytest.mark.parametrize(("pair", "verdicts"), params, indirect=["verdicts"], scope="module")


@in_two_processes(SLICED)
def test_sliced_weights_compute_the_same(pair, verdicts):
    verdict = verdicts["tp"][pair[0]]
    assert "error" not in verdict, verdict["error"]
    inner = "mlp.experts.gate_up_proj" if pair in EXPERTS else "mlp.up_proj"
    for part in (inner, "embed_tokens", *([f"mtp.depths.1.layer.{inner}"] if pair == FURTHER else [])):
        assert any(part in name for name in verdict["sliced"])
    whole_attention = pair[0] in ("olmo2-style", "t5-style")
    assert any("q_proj" in name for name in verdict["sliced"]) is not whole_attention


@in_two_processes(GATHERED)
def test_weights_that_are_gathered_compute_the_same(pair, verdicts):
    verdict = verdicts["fsdp"][pair[0]]
    assert "error" not in verdict, verdict["error"]
    assert set(verdict["sliced"]) == {name for name, _ in tiny(pair).model.named_parameters()}


@enough_over(ASSORTED)
def test_every_entry_of_a_plan_names_something(pair):
    model = tiny(pair).model
    for plan in (model.tp_plan, model.fsdp_plan):
        assert plan
        for pattern in plan:
            assert any(matches(pattern, name) for name, _ in model.named_modules())


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern with * for a number names a module."""
    ours, theirs = pattern.split("."), name.split(".")
    return len(ours) == len(theirs) and all(
        a == b or (a == "*" and b.isdigit()) for a, b in zip(ours, theirs, strict=True)
    )


def test_a_model_that_is_shared_between_stacks_keeps_its_embedding_with_the_root():
    model = tiny(("marian-style", "seq2seq-lm")).model.model
    assert "encoder.embed_tokens" in tensor_parallel_plan(model)
    assert set(fully_sharded_plan(model)) == {"encoder.layers.*", "decoder.layers.*"}


class Missing(nn.Module):
    """Stands where another stage of a pipeline has a module, as vLLM's PPMissingLayer does."""

    def forward(self, hidden_states, *args, **kwargs):
        return hidden_states


@pytest.mark.parametrize("name", zoo.list_variants(task="causal-lm"))
def test_two_stages_of_a_pipeline_compute_the_same_or_there_is_no_plan(name):
    subject = tiny((name, "causal-lm"))
    body = subject.body
    assert body.supports_pp_plan, "without one, vLLM makes stages of everything with parameters"
    if not (plan := body._pp_plan):
        position, config = type(body.position), subject.config
        added = position.embed is not zoo.models.embedding.Position.embed
        reads_earlier = ATTENTIONS.get(config.attention).reads_earlier_layers
        assert added or reads_earlier or config.embedding_norm or config.share_layers or config.residual != "plain"
        return
    assert list(plan) == list(subject.config.base_model_pp_plan) == list(pipeline_parallel_plan(body))
    stages = copy.deepcopy(body), copy.deepcopy(body)
    half = len(body.layers) // 2
    for stage, kept in zip(stages, (range(half), range(half, len(body.layers))), strict=True):
        for number in set(range(len(body.layers))) - set(kept):
            stage.layers[number] = Missing()
    stages[0].norm, stages[1].embed_tokens = Missing(), Missing()
    ids = subject.inputs()["input_ids"]
    with torch.no_grad():
        states = stages[0](input_ids=ids, use_cache=False).last_hidden_state
        found = stages[1](inputs_embeds=states, use_cache=False).last_hidden_state
        torch.testing.assert_close(found, body(input_ids=ids).last_hidden_state, atol=1e-9, rtol=0)
