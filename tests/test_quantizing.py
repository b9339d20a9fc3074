"""Models on int8 weights: nearly the same numbers, the same abilities, and what they refuse."""

import copy
import io
import json
import pickle

import pytest
import torch
from click.testing import CliRunner
from torch import nn

import zoo
from zoo.analysis.measuring import flops_per_token
from zoo.base.errors import InputError, UnsupportedBackendError, UnsupportedOperationError
from zoo.building import quantizing
from zoo.cli.main import cli
from zoo.converters import convert_back
from zoo.data.tasks import TASKS, train_tokenizers
from zoo.fast import int8
from zoo.fast.int8 import Int8Linear
from zoo.testing.subjects import new_subject
from zoo.training import save_checkpoint

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}


def test_a_layer_rounds_weights_by_output_and_inputs_together():
    """Beside the definition: symmetric scales of every output, one asymmetric scale of all inputs."""
    torch.manual_seed(0)
    layer, states = nn.Linear(24, 7), torch.randn(2, 5, 24)
    with torch.no_grad():
        layer.weight[0] *= 100
        layer.weight[1] = 0
    scales = layer.weight.abs().amax(1, keepdim=True).clamp(min=1e-30) / 127
    weight = (layer.weight / scales).round() * scales
    step = (states.max() - states.min()) / (127 if int8.int8_engine().reduce_range else 255)
    offset = (-states.min() / step).round()
    rounded = ((states / step + offset).round() - offset) * step
    expected = rounded @ weight.T + layer.bias
    assert torch.allclose(Int8Linear(layer)(states), expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(layer(states), expected, atol=1e-4, rtol=1e-4)


def test_layers_side_by_side_compute_what_each_does():
    torch.manual_seed(0)
    layers = (nn.Linear(16, 8), nn.Linear(16, 4, bias=False), nn.Linear(16, 6))
    states = torch.randn(3, 16)
    apart = torch.cat([Int8Linear(layer)(states) for layer in layers], dim=-1)
    assert torch.equal(Int8Linear(*layers)(states), apart)


@pytest.mark.parametrize("name", ["llama-style:num_key_value_heads=2,qk_norm=full", "gpt2-style:qk_norm=head"])
def test_fused_layers_compute_what_separate_ones_do(name, monkeypatch):
    model = zoo.build(name, "causal-lm", seed=0, vocab_size=50, **SIZES)
    fused = zoo.to_int8(model)
    monkeypatch.setattr(quantizing, "fuse", lambda model, tokens: None)
    separate = zoo.to_int8(model)
    ids = torch.randint(3, 50, (2, 7))
    assert torch.equal(fused(ids).logits, separate(ids).logits)
    assert len(list(fused.modules())) < len(list(separate.modules()))


@pytest.mark.parametrize("inplace", [False, True])
def test_every_linear_layer_is_replaced_and_the_source_is_not(inplace):
    model = zoo.build("gpt2-style", "causal-lm", seed=0, vocab_size=50, **SIZES)
    before = {name: parameter.clone() for name, parameter in model.state_dict().items()}
    model.train()
    sizes = list(model.parameters())
    quantised = zoo.to_int8(model, inplace=inplace)
    assert (quantised is model) is inplace and not quantised.training
    assert not any(type(module) is nn.Linear for module in quantised.modules())
    assert sum(parameter.numel() for parameter in quantised.parameters()) < 50 * 32 + 1024 * 32 + 64 * 20
    assert quantised.get_input_embeddings().weight.dtype == torch.float32
    assert zoo.show(quantised).card.num_parameters == quantised.num_parameters() == sum(map(torch.numel, sizes))
    assert quantised.num_parameters(exclude_embeddings=True) == sum(map(torch.numel, sizes[1:]))
    assert quantised.num_parameters(only_trainable=True) == 0
    if not inplace:
        assert type(model) is not type(quantised) and model.training
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert all(parameter.requires_grad for parameter in model.parameters())
    assert isinstance(quantised, zoo.models.ZooForCausalLM) and zoo.to_int8(quantised) is quantised


def test_shared_layers_stay_shared():
    model = zoo.build("vanilla+cross-attention-reuses-self", "seq2seq-lm", seed=0, vocab_size=50, **SIZES)
    layer = zoo.to_int8(model).model.decoder.layers[0]
    assert isinstance(layer.self_attn.q_proj, Int8Linear) and layer.self_attn.q_proj is layer.cross_attn.q_proj


@pytest.mark.parametrize(
    "refused",
    [
        lambda model: model.train(),
        lambda model: model.save_pretrained("nowhere"),
        lambda model: model.push_to_hub("someone/model"),
        lambda model: model.state_dict(),
        lambda model: model.to("meta"),
        lambda model: model.half(),
        lambda model: model.resize_token_embeddings(60),
        lambda model: zoo.push(model, "someone/model", dry_run=True),
        lambda model: zoo.export(model, "nowhere"),
        lambda model: convert_back(model, "vanilla"),
        lambda model: flops_per_token(model, 8),
        zoo.inside.summary,
        zoo.eject,
    ],
)
def test_what_needs_float_weights_is_refused(refused, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quantised = zoo.to_int8(zoo.build("gpt2-style", "causal-lm", vocab_size=50, **SIZES))
    with pytest.raises(UnsupportedOperationError, match=r"cannot .*float model that zoo\.to_int8 was given"):
        refused(quantised)
    assert not list(tmp_path.iterdir()) and not quantised.training
    assert quantised.to("cpu").eval().requires_grad_(False)(torch.ones(1, 2).long()).logits.shape == (1, 2, 50)


def test_only_models_of_the_zoo_on_the_cpu():
    with pytest.raises(InputError, match="Linear was given"):
        zoo.to_int8(nn.Linear(2, 2))
    with pytest.raises(InputError, match="on meta"):
        zoo.to_int8(zoo.build("gpt2-style", "causal-lm", vocab_size=50, **SIZES).to("meta"))


@pytest.mark.parametrize(("lacking", "value"), [("ENGINES", ("another",)), ("linear_dynamic", None)])
def test_a_machine_without_an_engine_is_refused_by_name(monkeypatch, lacking, value):
    int8.int8_engine.cache_clear()
    monkeypatch.setattr(int8, lacking, value)
    with pytest.raises(UnsupportedBackendError, match="multiplies no int8"):
        zoo.to_int8(zoo.build("gpt2-style", "causal-lm", vocab_size=50, **SIZES))


def test_pickling_is_refused_in_plain_words_and_copying_is_not():
    subject = new_subject("gpt2-style", "causal-lm")
    quantised = zoo.to_int8(subject.model)
    for part in (quantised, quantised.model.layers[0].self_attn):
        for save in (pickle.dumps, lambda part: torch.save(part, io.BytesIO())):
            with pytest.raises(UnsupportedOperationError, match="cannot be pickled"):
                save(part)
    ids = subject.inputs()["input_ids"]
    assert torch.equal(copy.deepcopy(quantised)(ids).logits, quantised(ids).logits)


def test_padding_counts_for_rounding_only():
    subject = new_subject("bert-style", "masked-lm")
    quantised = zoo.to_int8(subject.model)
    ids = subject.inputs()["input_ids"]
    padded = torch.cat([ids, torch.zeros_like(ids)], dim=1)
    mask = torch.cat([torch.ones_like(ids), torch.zeros_like(ids)], dim=1)
    with torch.no_grad():
        alone, together = quantised(ids).logits, quantised(padded, attention_mask=mask).logits[:, : ids.shape[1]]
    limit = 0.1 if int8.int8_engine().reduce_range else 0.05  # inputs of seven bits, or of eight
    assert float((alone - together).norm() / alone.norm()) < limit


@pytest.fixture(scope="module")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints") / "translator"
    task = TASKS.get("translation")
    examples = task.load().heldout
    tokenizers = train_tokenizers(task.sources(examples), task.references(examples), kind="word", joint=False)
    model = zoo.build("pre-norm", "seq2seq-lm", seed=1, **SIZES, **task.model_settings(tokenizers))
    save_checkpoint(model, tokenizers, folder)
    return folder


def test_the_command_line_runs_it(translator, tmp_path):
    def run(*arguments):
        result = CliRunner().invoke(cli, [str(argument) for argument in arguments])
        assert result.exit_code == 0, result.output
        return result.stdout

    options = ("--engine", "torch-int8", "--max-new-tokens", "5", "--json")
    (written,) = json.loads(run("generate", translator, "The dog is here.", *options))
    quantised = zoo.to_int8(zoo.load(translator))
    (expected,) = zoo.generate(quantised, "The dog is here.", tokenizer=translator, scores=True, max_new_tokens=5)
    assert written == json.loads(json.dumps(expected.to_dict()))
    pairs = tmp_path / "pairs.tsv"
    pairs.write_text("No.\tNão.\nThe dog is here.\tO cachorro está aqui.\n")
    arguments = ("--data", pairs, "--n-bootstrap", 1, "--quiet", "--json", "--generation", "max_new_tokens=4")
    found = [run("evaluate", translator, *arguments, "--engine", name) for name in ("torch", "torch-int8")]
    losses = [json.loads(one)["loss"] for one in found]
    assert losses[0] != losses[1] and losses[1] == pytest.approx(losses[0], rel=0.05)
    wrong = CliRunner().invoke(cli, ["generate", str(translator), "--engine", "int8"])
    assert wrong.exit_code == 2 and "did you mean 'torch-int8'" in wrong.stderr
