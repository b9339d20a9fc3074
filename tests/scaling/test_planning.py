"""Plans: strategies by size, memory, bounds, and commands that their programs can read."""

import json
import re
import shlex
from pathlib import Path

import pytest
import torch
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from click.testing import CliRunner
from datasets import Dataset
from torch.distributed.run import config_from_args, get_args_parser
from torch.utils._pytree import tree_leaves
from transformers import AutoConfig, default_data_collator

import zoo
from zoo.analysis.measuring import count_flops
from zoo.analysis.measuring.machine import Allocations
from zoo.analysis.own_settings import settings_of
from zoo.analysis.scaling import DEVICES, Plan, Strategy, plan
from zoo.analysis.scaling.planning import exchanged_bytes, parse_bytes, to_markdown
from zoo.analysis.scaling.simulating import Precision, step_memory
from zoo.analysis.scaling.strategies import (
    OPTIMIZERS,
    cache_of,
    flops_of,
    gathered_parameters,
    hollow,
    optimizer_states,
    share_of,
    simulated,
    sliced,
)
from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownNameError
from zoo.cli.plan import plan as plan_verb
from zoo.cli.train import train as train_verb
from zoo.fast.switches import fast_paths
from zoo.training.arguments import training_arguments
from zoo.training.preflight import states_of
from zoo.training.recipe import load_recipe
from zoo.training.trainer import ZooTrainer

pytestmark = pytest.mark.xdist_group("planning")  # four plans serve many tests

WIDE = "llama-style:hidden_size=256,intermediate_size=512,num_hidden_layers=2,num_attention_heads=8,"
WIDE += "num_key_value_heads=8,vocab_size=4000,max_position_embeddings=128"
"""Layers that can be sliced eight times."""
DOCUMENT = Path(__file__).parents[2] / "docs/scaling.md"


def planned(devices: int, memory: str) -> Plan:
    return plan(WIDE, devices=devices, memory=memory, tokens_per_update=2**12)


@pytest.fixture(scope="module")
def plans() -> dict[Strategy, Plan]:
    """One of each strategy, by less and less memory."""
    sizes = [(1, "1GiB"), (8, "1GiB"), (16, "45MB"), (64, "8MB")]
    return {made.strategy: made for made in (planned(*size) for size in sizes)}


def test_the_strategy_follows_from_the_memory(plans):
    assert list(plans) == list(Strategy)
    for made in plans.values():
        assert made.memory.total <= 0.9 * made.available
        assert made.tokens_per_update == made.devices // slices(made) * made.batches * made.sequences * 128
    assert plans[Strategy.DDP].memory.gradients == 2 * plans[Strategy.DDP].memory.parameters
    ddp = plans[Strategy.DDP].memory.parameters
    assert plans[Strategy.FSDP2].memory.parameters == pytest.approx(ddp / 16, rel=1e-3)
    assert plans[Strategy.TENSOR_PARALLEL].memory.activations < plans[Strategy.FSDP2].memory.activations


def slices(made: Plan) -> int:
    return 8 if made.strategy == Strategy.TENSOR_PARALLEL else 1


@pytest.mark.slow
def test_what_does_not_fit_is_refused_with_its_size():
    with pytest.raises(ConfigError, match=r"takes \d.* GiB on each of 8 devices, .* take more devices"):
        planned(8, "2MB")
    with pytest.raises(ConfigError, match="tie_word_embeddings=False"):
        plan("vanilla@tiny:tie_word_embeddings=True", devices=8, memory="10MB", seq_len=16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rel"),
    [
        (WIDE.replace("layers=2", "layers=4"), 0.02),
        ("lfm2-style@tiny:num_hidden_layers=5,vocab_size=500", 0),  # by a pattern of kinds
        ("attention-residuals@tiny:num_hidden_layers=4,vocab_size=500", 0),  # each layer reads all before
    ],
)
def test_counting_layers_on_comes_to_what_all_layers_take(name, rel):
    options = {"precision": Precision.BFLOAT16, "checkpointing": True, "whole_logits": True}
    whole = step_memory(hollow(name, "causal-lm"), 64, **options)
    counted = simulated(name, "causal-lm", (), 64, is_sharded=True, checkpointing=True)
    for sequences in (1, 4, 32):
        assert counted.body.at(sequences) == pytest.approx(whole.body.at(sequences), rel=rel)
        assert counted.logits(sequences) == pytest.approx(whole.logits(sequences), rel=2.5 * rel)
    ids = torch.empty(1, 64, dtype=torch.long, device="meta")
    assert flops_of(name, "causal-lm", 64) == count_flops(hollow(name, "causal-lm"), {"input_ids": ids})


FEW_IDS = ("gpt2-style", "llama-style", "mixtral-style", "deepseek-v3-style", "universal", "albert-style", "vanilla")
FEW_IDS += ("t5-style", "attention-is-all-you-need", "falcon-style", "lfm2-style", "qwen3-next-style", "gpt-oss-style")
FEW_IDS += ("multi-token-prediction", "hyper-connections")
MANY_IDS = "bert-style@tiny for sequence-classification"
"""A table of embeddings with a gradient of more bytes than the activations of a few sequences."""


@pytest.mark.slow
@pytest.mark.parametrize("again", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    "case",
    [
        *("gpt2-style@tiny:vocab_size=500", MANY_IDS),
        *(pytest.param(f"{name}@tiny:vocab_size=500", marks=pytest.mark.nightly) for name in FEW_IDS[1:]),
    ],
)
def test_training_takes_the_bytes_of_the_plan(case, again, tmp_path, monkeypatch):
    monkeypatch.setattr("zoo.fast.chunked_loss.LOGITS", 2**16)  # a small batch has full chunks
    simulated.cache_clear()
    name, _, task = case.partition(" for ")
    model = zoo.build(name, task or zoo.describe(name).tasks[0], attention_dropout=0.0, seed=0)
    options = {"checkpointing": again, "optim": "adamw_torch_fused"}
    planned = share_of(name, task or zoo.describe(name).tasks[0], 64, 1, Strategy.ONE, **options).memory(32)
    simulated.cache_clear()
    ids = torch.randint(3, 500, (128, 64)).tolist()
    data = Dataset.from_dict({"input_ids": ids, "labels": [0] * 128 if task else ids})
    given = {"per_device_train_batch_size": 32, "gradient_accumulation_steps": 2, "max_steps": 2, "use_cpu": True}
    given |= {"bf16": True, "optim": options["optim"], "gradient_checkpointing": again, "save_strategy": "no"}
    args = training_arguments({**given, "eval_strategy": "no"}, output_dir=tmp_path, seed=0)
    with fast_paths(unpadding="never", quick_dropout="never"), Allocations() as allocations:
        for tensor in (*model.parameters(), *model.buffers()):
            allocations.see(tensor)
        trainer = ZooTrainer(model=model, args=args, train_dataset=data, data_collator=default_data_collator)
        trainer.train()
    states = [state for of_one in trainer.optimizer.state.values() for state in of_one.values() if state.ndim]
    assert planned.parameters == planned.gradients == sum(one.nbytes for one in model.parameters())
    assert planned.optimizer == sum(state.nbytes for state in states)
    assert planned.total == pytest.approx(allocations.peak, rel=0.08)


@pytest.mark.parametrize("is_sharded", [False, True])
def test_layers_that_predict_further_tokens_take_memory(is_sharded):
    def step(settings):
        name = f"pre-norm@tiny{settings}"
        return simulated(name, "causal-lm", (), 64, is_sharded=is_sharded, checkpointing=False)

    without, deeper, with_depths = map(step, ("", ":num_hidden_layers=4", ":num_nextn_predict_layers=2"))
    assert with_depths.body.at(256) == without.body.at(256)
    layers = deeper.body.at(256) - without.body.at(256)
    assert with_depths.logits(256) - without.logits(256) > layers
    model = hollow("pre-norm@tiny:num_nextn_predict_layers=2", "causal-lm")
    layer = sum(parameter.numel() for parameter in model.model.layers[0].parameters())
    assert gathered_parameters(model) == model.num_parameters() - 2 * layer


def test_states_are_counted_in_numbers_of_32_bits():
    expected = {"adamw_torch_fused": 2, "adamw_8bit": 0.5, "adamw_bnb_8bit": 0.5, "adamw_torch_4bit": 0.25, "muon": 1}
    expected |= {"paged_lion_8bit": 0.25, "lion_32bit": 1, "rmsprop_bnb": 1, "rmsprop_bnb_8bit": 0.25, "sgd": 0}
    expected |= {"paged_ademamix_32bit": 3, "ademamix": 3, "paged_adamw_32bit": 2, "adafactor": 0, "lomo": 0}
    assert {optim: optimizer_states(optim) for optim in expected} == expected
    assert all(optimizer_states(optim) >= 0 for optim in OPTIMIZERS)


@pytest.mark.parametrize("optim", ["adafactor", "muon"])
@pytest.mark.parametrize("name", ["mixtral-style@tiny", "gpt2-style@tiny"])
def test_states_are_those_that_the_optimizer_keeps(optim, name, tmp_path):
    model = zoo.build(name, vocab_size=500)
    args = training_arguments({"use_cpu": True, "optim": optim}, output_dir=tmp_path, seed=0)
    optimizer = ZooTrainer(model=model, args=args).create_optimizer()
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    parts = getattr(optimizer, "parts", {"": optimizer}).values()
    states = [state for part in parts for one in part.state.values() for state in one.values()]
    kept = sum(state.numel() for state in states if isinstance(state, torch.Tensor) and state.ndim)
    assert round(optimizer_states(optim, model) * model.num_parameters()) == kept


LOW_RANK = [("galore_adamw", 128, 378368), ("galore_adamw_layerwise", 8, 220672), ("galore_adafactor", 8, 10452)]
LOW_RANK += [("apollo_adamw", 128, 558592), ("apollo_adamw_layerwise", 8, 220672)]


@pytest.mark.parametrize(("optim", "rank", "kept"), LOW_RANK)
def test_states_of_low_rank_are_those_of_a_step_of_galore_torch_1_0_and_apollo_torch_1_0_3(optim, rank, kept, tmp_path):
    model = zoo.build("gpt2-style@tiny", vocab_size=500)
    args = training_arguments({"optim": optim, "optim_args": f"rank={rank}"}, output_dir=tmp_path, seed=0)
    assert round(states_of(args, model) * model.num_parameters()) == kept
    made = plan("gpt2-style", devices=1, seq_len=64, optim=optim)
    assert made.memory.optimizer < 1.3 * made.memory.parameters
    embedding = 4 * zoo.config("gpt2-style").vocab_size * zoo.config("gpt2-style").hidden_size
    assert made.memory.gradients == (embedding if "layerwise" in optim else made.memory.parameters)
    assert made.command.endswith(f"--optim {optim} --training optim_target_modules=all-linear")


def test_both_stacks_exchange_what_their_layers_compute():
    one, three = (zoo.config("vanilla", "seq2seq-lm", decoder_layers=layers) for layers in (1, 3))
    per_layer = 2 * 3 * 10 * one.hidden_size * 2
    assert exchanged_bytes(three, 10) - exchanged_bytes(one, 10) == 2 * per_layer
    assert exchanged_bytes(zoo.config("gpt2-style"), 10) == 2 * 2 * 12 * 10 * 768 * 2
    assert exchanged_bytes(zoo.config("gpt2-style:num_nextn_predict_layers=2"), 10) == 2 * 2 * 14 * 10 * 768 * 2


@pytest.mark.parametrize("name", ["mixtral-style", "llama-style:feed_forward=moe-shared"])
def test_a_slice_has_as_many_times_fewer_channels_of_experts(name):
    given = {"num_key_value_heads": 4, "num_attention_heads": 4, "moe_intermediate_size": 256}
    shared = {"shared_expert_intermediate_size": 512} if "shared" in name else {}
    settings = ",".join(f"{key}={value}" for key, value in (given | shared).items())
    slice_ = dict(sliced(f"{name}{',' if shared else '@tiny:'}{settings}", "causal-lm", 4))
    assert slice_["moe_intermediate_size"] == 64 and slice_.get("shared_expert_intermediate_size", 128) == 128


@pytest.mark.parametrize(
    ("name", "part"), [("alibi-decoder", "self_attn.q_proj"), ("pre-norm:feed_forward=moe", "mlp.experts.gate_up_proj")]
)
def test_what_stays_whole_is_not_planned_in_slices(name, part):
    """Attention with a bias of positions, and experts with biases."""
    with pytest.raises(ConfigError, match=rf"model\.layers\.0\.{re.escape(part)}.* cannot be sliced"):
        sliced(name, "causal-lm", 2)


def test_bounds_follow_from_the_device(plans):
    one, eight = plans[Strategy.ONE], plans[Strategy.DDP]
    assert one.roofline.link == 0 and one.tokens_per_second <= one.tokens_per_update / one.roofline.compute
    assert eight.roofline.link == pytest.approx(2 * 7 / 8 * 4 * eight.num_parameters / DEVICES["h100"].link)
    slower = plan(WIDE, devices=1, device="L4", tokens_per_update=2**12)
    assert slower.tokens_per_second < one.tokens_per_second


def test_commands_can_be_read_by_their_programs(plans):
    for strategy, made in plans.items():
        program, *words = shlex.split(made.command)
        if program == "torchrun":
            read = get_args_parser().parse_args(words)
            config, _, inner = config_from_args(read)
            assert (config.nproc_per_node, read.training_script) == (8, "zoo")
            inner = read.training_script_args
        elif program == "accelerate":
            read, default, _ = _validate_launch_command(launch_command_parser().parse_args(words[1:]))
            assert default is None or not default.use_fsdp
            assert (read.num_processes, read.num_machines) == (made.devices, made.devices // 8)
            assert (read.use_fsdp, read.fsdp_version) == (True, "2")
            if strategy == Strategy.TENSOR_PARALLEL:
                assert (read.parallelism_config_tp_size, read.parallelism_config_dp_shard_size) == (8, 8)
                assert read.training_script == "train.py"
                continue
            inner = read.training_script_args
        else:
            inner = words
        verb, *arguments = inner
        context = train_verb.make_context(verb, [str(__file__) if word == "DATA" else word for word in arguments])
        assert (verb, context.params["name"]) == ("train", made.name)
        assert context.params["per_device_train_batch_size"] == made.sequences
        assert ("gradient_checkpointing", True) in context.params["training"] or not made.checkpointing


def test_several_machines_get_a_script(plans):
    assert plans[Strategy.DDP].slurm is None
    script = plans[Strategy.TENSOR_PARALLEL].slurm
    assert "--nodes=8" in script and '--main_process_ip "$HOST"' in script


@pytest.mark.parametrize("memory", ["80GiB", "80 gib", 80 * 2**30])
def test_sizes_are_read(memory):
    assert parse_bytes(memory) == 80 * 2**30


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"memory": "80 GiBs"}, ConfigError, "80GiB, 24GB"),
        ({"memory": "80"}, ConfigError, "80GiB, 24GB"),
        ({"devices": 12}, ConfigError, "multiples of 8"),
        ({"seq_len": 0}, ConfigError, "seq_len=0"),
        ({"device": "h1000"}, UnknownNameError, "h100"),
        ({"task": "feature-extraction"}, ConfigError, "causal-lm"),
        ({"optim": "adamw"}, InvalidChoiceError, "adamw_torch"),
    ],
)
def test_what_cannot_be_planned_is_refused_in_a_line(options, error, message):
    with pytest.raises(error, match=message):
        zoo.plan(WIDE, **options)


def test_a_plan_is_plain_data(plans):
    assert json.loads(json.dumps(plans[Strategy.DDP].to_dict()))["strategy"] == "DDP"


@pytest.mark.slow
@pytest.mark.parametrize("place", [0, *(pytest.param(other, marks=pytest.mark.nightly) for other in (1, 2))])
def test_the_document_shows_what_the_command_prints(place):
    text = DOCUMENT.read_text(encoding="utf-8")
    shown = re.findall(r"<!-- zoo plan (\S+) (.*?) --markdown -->\n(.*?)<!-- end -->", text, flags=re.DOTALL)
    assert len(shown) == 3
    name, words, table = shown[place]
    options = dict(zip(words.split()[::2], words.split()[1::2], strict=True))
    numbers = map(int, options.pop("--devices").split(","))
    others = {key.removeprefix("--").replace("-", "_"): int(value) for key, value in options.items()}
    assert to_markdown(plan(name, devices=number, **others) for number in numbers) == table


@pytest.mark.parametrize(("columns", "first"), [("80", "Devices"), ("200", "Devices  Strategy")])
def test_the_command_prints_rows_or_columns(columns, first, plans):
    words = [WIDE, "--devices", "1,8", "--memory", "1GiB", "--tokens-per-update", "4096"]
    printed = CliRunner().invoke(plan_verb, words, env={"COLUMNS": columns}).output.splitlines()
    assert any(line.startswith(first) for line in printed) and plans[Strategy.DDP].command in printed


RECIPE = """
task: language-modeling
task_options: {block_size: 32}
tokenizer: {kind: bpe, vocab_size: 500}
model: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}
arguments:
  num_train_epochs: 10
  per_device_train_batch_size: 4
  gradient_accumulation_steps: 2
  checkpoint_in: words
  checkpoint_at: 1M,100M
"""


@pytest.mark.slow
def test_a_recipe_is_planned_whole(tmp_path):
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(RECIPE)
    words = ["gpt2-style", "--recipe", str(recipe), "--device", "cpu", "--devices", "1", "--json"]
    (by_words,) = json.loads(CliRunner().invoke(plan_verb, words).stdout)
    assert by_words["tokens_per_update"] == 4 * 2 * 32 and by_words["run_tokens"] == 133_000_000
    assert by_words["run_updates"] == by_words["run_tokens"] / 256
    assert by_words["command"].startswith(f"zoo train gpt2-style --recipe {recipe} --data DATA")
    (by_data,) = json.loads(CliRunner().invoke(plan_verb, [*words, "--data", "babylm-10m"]).stdout)
    assert "--data babylm-10m " in by_data["command"]
    assert by_data["run_tokens"] == 10 * by_data["epoch_tokens"] == 133_000_000
    recipe.write_text(RECIPE.replace("num_train_epochs: 10", "max_steps: 50"))
    (by_steps,) = json.loads(CliRunner().invoke(plan_verb, words).stdout)
    assert (by_steps["run_updates"], by_steps["run_tokens"]) == (50, 50 * 256)
    recipe.write_text(RECIPE.replace("num_train_epochs: 10", "max_steps: 50").replace("size: 4", "size: 6"))
    (rounded,) = json.loads(CliRunner().invoke(plan_verb, words).stdout)
    assert rounded["run_updates"] == 50, "the command makes these, of batches that are powers of two"
    recipe.write_text(RECIPE + "  optim: muon\n")
    for more, least, most in (((), 1, 2), (("--optim", "adamw_torch"), 2, 2)):
        (made,) = json.loads(CliRunner().invoke(plan_verb, [*words, *more]).stdout)
        assert made["command"].endswith(f"--optim {more[-1] if more else 'muon'}")
        assert (
            least * made["memory"]["parameters"] <= made["memory"]["optimizer"] <= most * made["memory"]["parameters"]
        )
    refused = CliRunner().invoke(plan_verb, ["gpt2-style@tiny", "--optim", "adamw"])
    assert "unknown optim 'adamw'" in str(refused.exception)
    for flag in ("--seq-len", "--tokens-per-update"):
        refused = CliRunner().invoke(plan_verb, [*words, flag, "64"])
        assert f"--recipe has its own {flag}" in refused.output
    refused = CliRunner().invoke(plan_verb, ["gpt2-style", "--recipe", "translation"])
    assert refused.exit_code == 2 and "raw text in blocks" in refused.stderr
    refused = CliRunner().invoke(plan_verb, ["bert-style", "--recipe", str(recipe)])
    assert refused.exit_code == 2 and "no model for language-modeling" in refused.stderr
    for name, of_recipe, why in (
        ("gpt2-style", "nanogpt-cpu", "give its size: gpt2-style:vocab_size=N"),
        ("gpt2-style:vocab_size=65", "books", "vocab_size=65 was given, and books has 4096"),
    ):
        refused = CliRunner().invoke(plan_verb, [name, "--recipe", of_recipe])
        assert refused.exit_code == 2 and why in refused.stderr
    characters = ["gpt2-style:vocab_size=65", "--recipe", "nanogpt-cpu", *words[3:]]
    assert "vocab_size=65" in CliRunner().invoke(plan_verb, characters).stdout


def test_a_saved_model_is_planned_as_its_variant(tmp_path):
    zoo.build("gpt2-style@tiny", vocab_size=97).save_pretrained(tmp_path)
    saved, named = plan(str(tmp_path), devices=1), plan("gpt2-style@tiny:vocab_size=97", devices=1)
    assert (saved.memory, saved.num_parameters, saved.roofline) == (named.memory, named.num_parameters, named.roofline)
    config = zoo.config(re.search(r"train '?(\S+?)'? --task", saved.command)[1])
    assert config.to_dict() == zoo.config("gpt2-style@tiny:vocab_size=97").to_dict()


@pytest.mark.parametrize(("recipe", "vocabulary", "dropout"), [("books", 4096, 0.0), ("nanogpt-cpu", 97, 0.1)])
def test_a_saved_model_is_planned_with_a_recipe(recipe, vocabulary, dropout, tmp_path):
    """With the sizes of its own that the recipe gives otherwise, and the recipe's vocabulary."""
    zoo.build("gpt2-style@tiny", vocab_size=97, dropout=dropout).save_pretrained(tmp_path)
    words = [str(tmp_path), "--recipe", recipe, "--device", "cpu", "--devices", "1", "--json"]
    (made,) = json.loads(CliRunner().invoke(plan_verb, words, catch_exceptions=False).stdout)
    name = shlex.split(made["command"])[2]
    settings = {"vocab_size": vocabulary, **load_recipe(recipe).model_settings(name)}
    planned, saved = (settings_of(one) for one in (zoo.config(name, **settings), AutoConfig.from_pretrained(tmp_path)))
    assert made["command"].startswith(f"zoo train {name} --recipe {recipe}") and made["run_tokens"] > 0
    assert planned == {**saved, "vocab_size": vocabulary}


@pytest.mark.parametrize(
    ("name", "size"),
    [
        (
            "llama-style@tiny:num_key_value_heads=2",
            2 * 2 * 64 * 2 * 16,
        ),  # keys, values; layers, tokens, heads, width
        ("marian-style@tiny", 2 * 2 * 2 * 64 * 64),  # of the target and of the source
        ("deepseek-v3-style@tiny:num_hidden_layers=5", 5 * 64 * (16 + 8)),  # latents and rotated keys
        ("universal@tiny:num_hidden_layers=5", 2 * 5 * 64 * 64),  # one layer, with a cache in each step
    ],
)
def test_the_cache_of_a_sequence_is_planned(name, size):
    assert cache_of(name, "seq2seq-lm" if name.startswith("marian") else "causal-lm", 64) == 2 * size


def test_a_plan_has_the_cache_of_a_model_that_writes(plans):
    assert plans[Strategy.ONE].cache == cache_of(WIDE, "causal-lm", 128) > 0
    assert cache_of("bert-style@tiny", "masked-lm", 64) is None


@pytest.mark.parametrize("name", ["gemma3-style@tiny:num_hidden_layers=6", "qwen3-next-style@tiny"])
def test_the_cache_of_a_sequence_takes_what_a_real_one_takes(name):
    model = zoo.build(name, dtype=torch.bfloat16)
    cache = model(torch.arange(3, 67)[None], use_cache=True).past_key_values
    kept = [one for layer in cache.layers for value in vars(layer).values() for one in tree_leaves(value)]
    sizes = sum(one.nbytes for one in kept if isinstance(one, torch.Tensor))
    assert cache_of(name, "causal-lm", 64) == sizes
