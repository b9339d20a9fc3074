"""Optimisers, schedules, and when a run ends."""

import copy
import json
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file
from transformers import get_scheduler

import zoo
from zoo.base.errors import ConfigError, InvalidChoiceError, UnknownOverrideError
from zoo.comparison.request.request import Request
from zoo.training import train
from zoo.training.arguments import check_idle, training_arguments
from zoo.training.optimizers import build_muon
from zoo.training.trainer import ZooTrainer

SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 20}


def muon(model):
    decayed = [name for name, parameter in model.named_parameters() if parameter.ndim > 1]
    given = {"learning_rate": 0.01, "weight_decay": 0.1, "adam_beta2": 0.99, "use_cpu": True}
    return build_muon(model, decayed, training_arguments(given, output_dir="unused", seed=0))


def step(model, optimizer):
    ids = torch.arange(4, 14)[None]
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()


def test_muon_has_the_matrices_and_adamw_the_rest():
    model = zoo.build("gpt2-style", "causal-lm", seed=0, **SIZES)
    plain = copy.deepcopy(model)
    matrices = {name for name, parameter in model.named_parameters() if "_proj.weight" in name}
    named = dict(plain.named_parameters())
    others = {name: parameter for name, parameter in named.items() if name not in matrices}
    assert {"model.embed_tokens.weight", "model.position.weight"} <= others.keys() and matrices
    expected = [
        torch.optim.Muon([named[one] for one in matrices], lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
        torch.optim.AdamW(
            [
                {"params": [p for p in others.values() if p.ndim > 1], "weight_decay": 0.1},
                {"params": [p for p in others.values() if p.ndim == 1], "weight_decay": 0.0},
            ],
            lr=0.01,
            betas=(0.9, 0.99),
        ),
    ]
    optimizer = muon(model)
    for _ in range(2):
        step(model, optimizer)
        ids = torch.arange(4, 14)[None]
        plain.zero_grad()
        plain(input_ids=ids, labels=ids).loss.backward()
        for part in expected:
            part.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, named[name], msg=name)


def test_muon_follows_a_schedule_and_its_own_state():
    model = zoo.build("gpt2-style", "causal-lm", seed=0, **SIZES)
    optimizer = muon(model)
    step(model, optimizer)
    other = copy.deepcopy(model)
    restored = muon(other)
    restored.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for one, its_optimizer in ((model, optimizer), (other, restored)):
        get_scheduler("inverse_sqrt", its_optimizer, num_warmup_steps=10)  # begins at 0
        before = [parameter.clone() for parameter in one.parameters()]
        step(one, its_optimizer)
        assert all(torch.equal(a, b) for a, b in zip(before, one.parameters(), strict=True))
        for group in its_optimizer.param_groups:
            group["lr"] = 0.02
        step(one, its_optimizer)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_the_schedule_of_the_paper():
    """Vaswani et al. 2017, section 5.3: width ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)."""
    width, warmup = 64, 40
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=(width * warmup) ** -0.5)
    schedule = get_scheduler("inverse_sqrt", optimizer, num_warmup_steps=warmup)
    for number in range(1, 200):
        optimizer.step()
        schedule.step()
        expected = width**-0.5 * min(number**-0.5, number * warmup**-1.5)
        assert schedule.get_last_lr()[0] == pytest.approx(expected)


@pytest.mark.parametrize("more", [{}, {"optim_args": "rank=4"}])
def test_weights_have_the_hook_of_one_layerwise_optimizer(tmp_path, monkeypatch, more):
    names = ("GaLoreAdamW", "GaLoreAdamW8bit", "GaLoreAdafactor")
    monkeypatch.setitem(sys.modules, "galore_torch", SimpleNamespace(**dict.fromkeys(names, torch.optim.AdamW)))
    monkeypatch.setattr("transformers.trainer_optimizer.is_galore_torch_available", lambda: True)
    model = zoo.build("gpt2-style", "causal-lm", **SIZES)
    given = {"optim": "galore_adamw_layerwise", "optim_target_modules": "all-linear", **more}
    ZooTrainer(model=model, args=training_arguments(given, output_dir=tmp_path, seed=0)).create_optimizer()
    assert {len(one._post_accumulate_grad_hooks) for one in model.parameters()} == {1}


@pytest.mark.parametrize("scales", [False, True])
def test_steps_of_adafactor_can_follow_the_size_of_a_weight(tmp_path, scales):
    """Shazeer and Stern 2018, section 8: the first is the learning rate, times the root mean square of the weight."""
    model = zoo.build("gpt2-style", "causal-lm", seed=0, **SIZES)
    given = {
        "optim": "adafactor",
        "optim_args": "scale_parameter=True" * scales,
        "learning_rate": 0.01,
        "weight_decay": 0.0,
    }
    optimizer = ZooTrainer(model=model, args=training_arguments(given, output_dir=tmp_path, seed=0)).create_optimizer()
    weight = model.model.layers[0].mlp.up_proj.weight
    before = weight.detach().clone()
    weight.grad = torch.ones_like(weight)
    optimizer.step()
    expected = 0.01 * (before.square().mean().sqrt().item() if scales else 1)
    assert (before - weight).abs().mean().item() == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("optim", ["muon", "adafactor"])
def test_runs_with_other_optimisers(few, tiny, optim):
    result = train("pre-norm", data=few, optim=optim, **{**tiny, "max_steps": 20})
    assert result.report.history[-1]["loss"] < result.report.history[0]["loss"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optim_args": "eps"}, "optim_args='eps' has 'eps'; valid: KEY=VALUE"),
        ({"optim_args": "eps=1e-6"}, "eps=1e-6 has no effect with optim=adamw_torch_fused"),
        ({"optim": "muon", "optim_args": "momentum=0.9"}, "momentum=0.9 has no effect with optim=muon"),
        ({"optim": "rmsprop", "optim_args": "alpha=0.9,no=1"}, "no=1 has no effect with optim=rmsprop"),
        (
            {"optim": "adafactor", "optim_args": "beta1=0.9"},
            "beta1=0.9 has no effect with optim=adafactor; valid: scale_",
        ),
        ({"optim": "adafactor", "optim_args": "scale_paramter=True"}, "did you mean 'scale_parameter'"),
        ({"optim": "adafactor", "optim_args": "scale_parameter=False"}, "False has no effect with optim=adafactor$"),
        (
            {"optim": "adafactor", "optim_args": "scale_parameter=much"},
            "optim_args=scale_parameter=much cannot be used",
        ),
        ({"optim": "rmsprop", "optim_args": "alpha=much"}, "optim=rmsprop, optim_args=alpha=much cannot be used"),
        (
            {"lr_scheduler_type": "linear", "lr_scheduler_kwargs": {"cycles": 2}},
            "lr_scheduler_type=linear, lr_scheduler_kwargs=.* 'cycles'",
        ),
        (
            {"optim": "sgd", "settings": {"parametrization": "mup"}},
            "'mup' was given with sgd; its learning rates are those of Adam",
        ),
        (
            {"optim": "adafactor", "optim_args": "scale_parameter=True", "settings": {"parametrization": "mup"}},
            "'mup' was given with adafactor",
        ),
        ({"lr_scheduler_type": "cosine_with_min_lr"}, "lr_scheduler_type=cosine_with_min_lr cannot be used: .*min_lr"),
    ],
)
def test_what_an_optimizer_or_a_schedule_does_not_take_is_refused(few, tiny, given, message):
    with pytest.raises(ConfigError, match=message):
        train("pre-norm", data=few, **{**tiny, **given})


def test_the_best_checkpoint_is_kept_and_a_run_that_gets_worse_ends(few, tiny, tmp_path, monkeypatch):
    evaluation_loop = ZooTrainer.evaluation_loop

    def scripted(trainer, *args, **kwargs):
        output = evaluation_loop(trainer, *args, **kwargs)
        if trainer.state.global_step in losses:
            output.metrics["eval_loss"] = losses[trainer.state.global_step]
        return output

    losses = {2: 5.0, 4: 3.0, 6: 4.0, 8: 3.5}
    monkeypatch.setattr(ZooTrainer, "evaluation_loop", scripted)
    folder = tmp_path / "model"
    arguments = {**tiny, "max_steps": 20, "eval_strategy": "steps", "eval_steps": 2, "early_stopping_patience": 2}
    report = train("pre-norm", data=few, output_dir=folder, **arguments).report
    assert (report.steps, report.best_step) == (8, 4)
    best, kept = (load_file(at / "model.safetensors") for at in (tmp_path / "model-checkpoints/checkpoint-4", folder))
    assert all(torch.equal(best[name], kept[name]) for name in best)
    assert json.loads((folder / "result.json").read_text())["report"]["best_step"] == 4


def test_keeping_the_best_needs_evaluations(tmp_path):
    def arguments(**given):
        return training_arguments({**given, "use_cpu": True}, output_dir=tmp_path, seed=0)

    stopping = arguments(early_stopping_patience=3)
    assert stopping.load_best_model_at_end and stopping.metric_for_best_model == "loss"
    assert stopping.eval_strategy == stopping.save_strategy == "epoch"
    best = arguments(load_best_model_at_end=True, eval_strategy="steps", eval_steps=7)
    assert (best.save_strategy, best.save_steps, best.save_total_limit) == ("steps", 7, 2)
    assert not arguments().load_best_model_at_end
    assert arguments(load_best_model_at_end=True, eval_steps=7).eval_strategy == "steps"
    kept = arguments(load_best_model_at_end=True, save_strategy="best")
    assert (kept.eval_strategy, kept.save_strategy) == ("epoch", "best")
    assert arguments(eval_strategy="epoch", save_strategy="best").metric_for_best_model == "loss"
    often = arguments(eval_steps=7, save_steps=14)
    assert (often.eval_strategy, often.eval_steps, often.save_strategy, often.save_steps) == ("steps", 7, "steps", 14)


BEST = {"load_best_model_at_end": True}


@pytest.mark.parametrize(
    ("given", "error", "useful"),
    [
        ({"per_device_train_batch_size": 3.5}, ConfigError, "valid: 1 and more, whole numbers"),
        ({"max_steps": 2.5}, ConfigError, "valid: 1 and more, whole numbers"),
        ({"eval_accumulation_steps": 0}, ConfigError, "eval_accumulation_steps=0 is not valid; valid: 1 and more"),
        ({"dataloader_num_workers": -1}, ConfigError, "dataloader_num_workers=-1 is not valid; valid: 0 and more"),
        ({"eval_delay": "late"}, ConfigError, "eval_delay='late' is not valid; valid: 0 and more"),
        ({"optim_args": 5}, ConfigError, "optim_args=5 is not valid; it is KEY=VALUE"),
        ({"accelerator_config": 5}, ConfigError, "accelerator_config=5 is not valid; it is names and values"),
        ({"accelerator_config": {"split_batches": True}}, ConfigError, "{'split_batches': True} gives several process"),
        ({"accelerator_config": {"dispatch_batches": True}}, ConfigError, "{'dispatch_batches': True} gives several"),
        ({"accelerator_config": {"even_batches": False}}, ConfigError, "{'even_batches': False} gives several process"),
        ({"train_sampling_strategy": "randm"}, InvalidChoiceError, "did you mean 'random'"),
        ({"max_steps": True}, ConfigError, "max_steps=True is not valid; valid: 1 and more, whole numbers"),
        ({"learning_rate": True}, ConfigError, "learning_rate=True is not valid; valid: 0 and more"),
        ({"average_last": 0.5}, ConfigError, "has no effect without average"),
        ({"checkpoint_in": "words"}, ConfigError, "has no effect without checkpoint_at"),
        ({"fp16": True}, ConfigError, "fp16=True has no effect on a CPU"),
        ({"auto_find_batch_size": True}, ConfigError, "give per_device_train_batch_size and gradient_accumulation_st"),
        ({"prediction_loss_only": True}, ConfigError, "prediction_loss_only=True leaves out the outputs"),
        ({"remove_unused_columns": False}, ConfigError, "remove_unused_columns=False gives models what only the zoo"),
        ({"push_to_hub": True}, ConfigError, "--push REPO"),
        ({"resume_from_checkpoint": "there"}, ConfigError, "=there has no effect: --resume"),
        ({"eval_do_concat_batches": False}, ConfigError, "eval_do_concat_batches=False leaves outputs in batches"),
        ({"generation_num_beams": 2}, ConfigError, "generation_num_beams=2 has no effect"),
        ({"greater_is_better": True}, ConfigError, "the highest loss"),
        ({"load_best_model_at_end": True, "eval_steps": 7, "save_steps": 14}, ConfigError, "eval_steps=7 and save_st"),
        ({**BEST, "save_strategy": "no"}, ConfigError, "save_strategy=no was given, and the best checkpoint"),
        ({**BEST, "eval_strategy": "no"}, ConfigError, "eval_strategy=no was given, and the best checkpoint"),
        ({**BEST, "eval_strategy": "epoch", "save_strategy": "steps"}, ConfigError, "give both alike"),
        ({"early_stopping_patience": 1, "load_best_model_at_end": False}, ConfigError, "leave one out"),
        ({"save_strategy": "best"}, ConfigError, "without evaluations: give eval_strategy"),
        ({"metric_for_best_model": "loss"}, ConfigError, "no effect where the best checkpoint is not kept: give"),
        ({"metric_for_best_model": "bleu"}, InvalidChoiceError, "unknown metric_for_best_model 'bleu'; valid: loss"),
        ({"hidden_size": 16}, ConfigError, "setting of models: give settings={'hidden_size': 16}"),
        ({"learningrate": 1}, UnknownOverrideError, "did you mean 'learning_rate'"),
        ({"lr_scheduler_type": "cosin"}, InvalidChoiceError, "did you mean 'cosine'?"),
        ({"lr_scheduler_type": "straight"}, InvalidChoiceError, "unknown lr_scheduler_type 'straight'; valid: linear"),
        ({"eval_strategy": "epochs"}, InvalidChoiceError, "did you mean 'epoch'?"),
        ({"optim": "moun"}, InvalidChoiceError, "did you mean 'muon'"),
        ({"report_to": "wandbb"}, InvalidChoiceError, "did you mean 'wandb'"),
        ({"report_to": 5}, InvalidChoiceError, "unknown report_to '5'; valid: tensorboard"),
        ({"decay": "matrix"}, InvalidChoiceError, "did you mean 'matrices'"),
    ],
)
def test_arguments_that_would_fail_or_do_nothing_are_refused(tmp_path, given, error, useful):
    with pytest.raises(error) as refused:
        training_arguments({"use_cpu": True, **given}, output_dir=tmp_path, seed=0)
    assert useful in str(refused.value)
    training_arguments({"use_cpu": True, "remove_unused_columns": True, "push_to_hub": False}, output_dir=".", seed=0)


@pytest.mark.parametrize(
    ("given", "useful"),
    [
        ({"eval_steps": 2, "eval_strategy": "epoch"}, "eval_steps=2 was given, which has no effect with eval_strategy"),
        ({"save_steps": 2, "save_strategy": "no"}, "save_steps=2 was given, which has no effect with save_strategy=no"),
        ({"warmup_steps": 2, "lr_scheduler_type": "constant"}, "no effect with lr_scheduler_type=constant"),
        ({"lr_scheduler_kwargs": {"x": 1}, "lr_scheduler_type": "constant"}, "lr_scheduler_kwargs={'x': 1} was given"),
        ({"adam_beta1": 0.5, "optim": "adafactor"}, "adam_beta1=0.5 was given, which has no effect with optim=adafac"),
        (
            {"decay": "all", "weight_decay": 0},
            "decay=all was given, which has no effect with weight_decay=0; leave out",
        ),
        ({"dataloader_persistent_workers": True}, "has no effect without dataloader_num_workers"),
        ({"average_decay": 0.5, "average": "lawa"}, "average_decay=0.5 was given, which has no effect with average=l"),
    ],
)
def test_arguments_without_an_effect_next_to_others_are_refused(tmp_path, given, useful):
    with pytest.raises(ConfigError, match=useful):
        train("pre-norm", output_dir=tmp_path / "model", **given)
    with pytest.raises(ConfigError, match=useful):
        zoo.compare(["pre-norm"], output_dir=tmp_path / "comparison", **given)
    Request(["pre-norm"], arguments={"decay": "all"}, sweep=["weight_decay=0,0.1"]).check_arguments()
    check_idle({"optim": "adafactor"}, {"optim": "adafactor", "adam_beta2": 0.98})  # which is the recipe's
