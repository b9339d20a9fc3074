"""Training: what is counted, what is evaluated, and that equal means equal."""

import math
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn.functional import cross_entropy
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

import zoo
from zoo.base.errors import OutputExistsError, UnknownNameError, UnknownOverrideError, UnknownVariantError, ZooWarning
from zoo.base.folders import read_result
from zoo.data.tasks import TASKS
from zoo.fast.switches import current, fast_paths
from zoo.training import TrainingError, train
from zoo.training.arguments import training_arguments
from zoo.training.predicting import check_generation, predict, settings_of_outputs
from zoo.training.record import peak_memory
from zoo.training.trainer import ZooTrainer

TASK = TASKS.get("translation")
REVERSE = "reverse:train_examples=40,heldout_examples=8"


@pytest.fixture(scope="module")
def trained(few, tiny, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained") / "model"
    return train("pre-norm", data=few, output_dir=folder, per_device_eval_batch_size=5, **tiny), folder


def test_padding_is_not_counted(trained, few):
    report = trained[0].report
    encoded = TASK.encode(few.train, trained[0].tokenizers)
    assert report.steps == 4 and report.train_examples == 40 and 0 < report.train_tokens < sum(encoded["length"])
    assert report.train_tokens_per_second == report.train_tokens / report.train_seconds


def test_one_epoch_counts_every_token(few, tiny):
    result = train("pre-norm", data=few, **{**tiny, "max_steps": -1, "num_train_epochs": 1})
    assert result.report.train_tokens == sum(TASK.encode(few.train, result.tokenizers)["length"])


def test_the_held_out_loss_is_the_plain_one_per_token(trained, few):
    """Against a loop over single examples, without padding and smoothing."""
    result, _ = trained
    total, tokens = 0.0, 0
    for row in TASK.encode(few.heldout, result.tokenizers):
        labels = torch.tensor([row["labels"]])
        with torch.no_grad():
            logits = result.model(input_ids=torch.tensor([row["input_ids"]]), labels=labels).logits
        total += cross_entropy(logits[0].double(), labels[0], reduction="sum").item()
        tokens += labels.numel()
    assert result.report.heldout_loss == pytest.approx(total / tokens, rel=1e-5)


def test_the_output_folder_may_be_in_the_home(few, tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("USERPROFILE" if os.name == "nt" else "HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    train("pre-norm", data=few, output_dir="~/model", resume=True, scored=False, **tiny)
    assert "report" in read_result(tmp_path / "model") and list(tmp_path.iterdir()) == [tmp_path / "model"]


def test_outputs_are_in_the_order_of_the_data(trained, few):
    result, _ = trained
    source, target = result.tokenizers.source, result.tokenizers.target
    for sentence, output in zip(few.heldout["en"], result.outputs, strict=True):
        ids = result.model.generate(**source([sentence], return_tensors="pt"), num_beams=2, max_length=12)
        assert target.decode(ids[0], skip_special_tokens=True).strip() == output


def test_outputs_end_where_those_of_generate_do(trained, few, tiny):
    """Settings of the model, which would win over another length, do not; without any, 128 tokens are the most."""
    tokenizers = trained[0].tokenizers
    model = zoo.build("pre-norm", "seq2seq-lm", seed=0, **tiny["settings"], **TASK.model_settings(tokenizers))
    model.generation_config.max_new_tokens = 3
    encoded = TASK.encode(few.heldout, tokenizers)
    longest = max(map(len, encoded["labels"]))
    with pytest.warns(ZooWarning, match=rf"references have more than 3 tokens, .*'max_new_tokens': {longest}}}"):
        check_generation(model, TASK, tokenizers, {}, encoded)
    arguments = training_arguments({"use_cpu": True}, output_dir="unused", seed=0, progress=False)
    trainer = ZooTrainer(
        model=model,
        args=arguments,
        data_collator=TASK.collator(tokenizers),
        eval_dataset=encoded,
        processing_class=tokenizers.target,
    )
    outputs = predict(trainer, TASK, tokenizers, {"max_length": 12}).outputs
    generated = zoo.generate(model, few.heldout["en"][:], tokenizer=tokenizers, max_length=12)
    assert outputs == [one.text for one in generated] and model.generation_config.max_new_tokens == 3
    model.generation_config.max_new_tokens = None
    assert settings_of_outputs(model, tokenizers, {}).max_new_tokens == 128


def test_the_report_is_complete(trained):
    report = trained[0].report.to_dict()
    assert report["scores"]["bleu"]["signature"].startswith("nrefs:1|case:mixed|")
    assert {"bleu", "chrf"} == set(report["scores"]) and report["num_parameters"] == trained[0].model.num_parameters()
    assert report["peak_memory"] is None or report["peak_memory"] > 50 * 2**20
    assert [entry["step"] for entry in report["history"]] == [2, 4] and math.isfinite(report["train_loss"])


def test_the_memory_of_a_device_is_not_that_of_the_process():
    assert peak_memory(torch.device("mps")) is None


def test_what_is_saved_is_loaded_by_the_auto_classes(trained):
    result, folder = trained
    assert {"config.json", "model.safetensors", "tokenizer.json"} <= {file.name for file in folder.iterdir()}
    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.model_max_length == model.config.max_position_embeddings
    ids = tokenizer(["The dog is here."], return_tensors="pt")
    labels = torch.tensor([[5, 6, 2]])
    with torch.no_grad():
        assert torch.equal(model(**ids, labels=labels).logits, result.model(**ids, labels=labels).logits)
    assert model.generation_config.max_length is None, "a default of transformers was saved as if it were wanted"


def test_the_same_seed_gives_the_same_weights(trained, few, tiny, tmp_path):
    train("pre-norm", data=few, output_dir=tmp_path / "again", **tiny)
    train("pre-norm", data=few, output_dir=tmp_path / "other", seed=1, **tiny)
    folders = (trained[1], tmp_path / "again", tmp_path / "other")
    first, again, other = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


@pytest.mark.parametrize("average", [{}, {"average": "ema", "average_decay": 0.5}])
def test_evaluating_while_training_changes_no_weights(few, tiny, tmp_path, average):
    """Though dropout draws from the generator that a data loader draws from."""
    for name, steps in (("never", {}), ("often", {"eval_steps": 1})):
        train("pre-norm", data=few, output_dir=tmp_path / name, **{**tiny, **average, **steps})
    never, often = (load_file(tmp_path / name / "model.safetensors") for name in ("never", "often"))
    assert all(torch.equal(never[name], often[name]) for name in never)


def test_variants_see_the_same_batches(few, tiny, monkeypatch):
    """Though they draw different numbers of random numbers."""

    def spied(trainer, model, inputs, *rest):
        seen.append(inputs["input_ids"].tolist())
        return step(trainer, model, inputs, *rest)

    seen, step = [], ZooTrainer.training_step
    monkeypatch.setattr(ZooTrainer, "training_step", spied)
    for name in ("vanilla", "pre-norm:decoder_layers=2,dropout=0.3"):
        train(name, data=few, **{**tiny, "max_steps": 6})
    assert len(seen) == 12 and seen[:6] == seen[6:]


def test_a_model_and_its_tokenizer_can_be_given(trained, few, tiny):
    result, folder = trained
    model = zoo.load(folder)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    continued = train(model, data=few, **{**tiny, "tokenizer": Path(folder)})
    assert continued.report.variant == "ZooForConditionalGeneration"
    assert continued.tokenizers.source.get_vocab() == result.tokenizers.source.get_vocab()
    assert any(not torch.equal(before[name], weight) for name, weight in continued.model.state_dict().items())


def test_separate_vocabularies(few, tiny):
    result = train("d2l-style", data=few, **{**tiny, "tokenizer": {"kind": "word", "joint": False}})
    assert not result.tokenizers.joint and result.model.config.vocab_size != result.model.config.decoder_vocab_size


def test_it_learns(few, tiny):
    settings = {**tiny["settings"], "hidden_size": 64, "dropout": 0.0}
    arguments = {"max_steps": 150, "learning_rate": 1e-2, "warmup_steps": 10, "settings": settings}
    result = train("pre-norm", data=few, **{**tiny, **arguments})
    found = zoo.evaluate(result.model, "translation", data=few.train, tokenizer=result.tokenizers, n_bootstrap=1)
    assert found.scores["bleu"].value > 90


@pytest.mark.parametrize("num_beams", [1, 2])
def test_outputs_that_are_scored_stop_at_strings(few, tiny, num_beams):
    generation = {"max_new_tokens": 12, "num_beams": num_beams, "stop_strings": ["e", "o"]}
    result = train("pre-norm", data=few, **{**tiny, "generation": generation})
    written = zoo.generate(result.model, few.heldout["en"][:], tokenizer=result.tokenizers, **generation)
    assert result.outputs == [one.text for one in written]
    assert any("e" in one or "o" in one for one in result.outputs)


def test_a_loss_that_is_no_number_stops(few, tiny):
    with pytest.raises(TrainingError, match=r"loss is nan at step \d; a lower learning_rate"):
        train("pre-norm", data=few, **{**tiny, "learning_rate": 1e30, "max_grad_norm": 0, "label_smoothing_factor": 0})


def test_overflows_are_looked_for_in_padded_batches_and_while_scoring(few, tiny):
    result = train("pre-norm", data=few, **tiny, debug="underflow_overflow")
    report = result.report
    assert not any(module._forward_hooks for module in result.model.modules()), "hooks that search are left"
    assert report.scores and report.heldout_loss == train("pre-norm", data=few, **tiny).report.heldout_loss
    with pytest.raises(ValueError, match="DebugUnderflowOverflow: inf/nan detected"):
        train("pre-norm", data=few, **{**tiny, "learning_rate": 1e30, "max_grad_norm": 0.0}, debug="underflow_overflow")


def test_bad_names_stop_before_anything_is_trained(few, tiny, tmp_path):
    with pytest.raises(UnknownVariantError, match="did you mean 'vanilla'"):
        train("vanila", data=few, **tiny)
    with pytest.raises(UnknownNameError, match="did you mean 'translation'"):
        train("vanilla", "translations", data=few, **tiny)
    with pytest.raises(UnknownOverrideError, match="did you mean 'learning_rate'"):
        train("vanilla", data=few, **tiny, learnin_rate=1)
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(OutputExistsError):
        train("vanilla", data=few, output_dir=tmp_path, force=True, **tiny)


@pytest.mark.parametrize("can", [True, False])
def test_a_model_that_cannot_generate_is_scored_by_its_loss_alone(tiny, tmp_path, can):
    """Sources and targets of one length train it; the quirk leaves nothing to write the next token with."""
    name = "explicando" if can else "explicando+memory-makes-queries"
    report = train(name, REVERSE, output_dir=tmp_path / "m", **{**tiny, "tokenizer": None}).report
    evaluation = zoo.evaluate(tmp_path / "m", progress=False)
    assert set(report.scores) == set(evaluation.scores) == ({"exact_match", "symbol_accuracy"} if can else set())
    assert evaluation.loss == pytest.approx(report.heldout_loss, rel=1e-5)
    assert replace(evaluation, loss=1e4).to_dict()["perplexity"] == math.inf


def test_an_incomplete_last_batch_is_evaluated_where_training_drops_its_own(few, tiny):
    """40 examples to train on are five whole batches, 12 held-out ones none of 16."""
    sizes = {"per_device_eval_batch_size": 16}
    kept, dropped = (train("pre-norm", data=few, **tiny, **sizes, dataloader_drop_last=drop) for drop in (False, True))
    assert kept.report.heldout_loss == dropped.report.heldout_loss


def test_determinism_ends_with_the_run_that_asked_for_it(few, tiny):
    train("pre-norm", data=few, full_determinism=True, **tiny)
    assert not torch.are_deterministic_algorithms_enabled() and not torch.backends.cudnn.deterministic


@pytest.mark.parametrize(("asked", "used"), [("auto", "never"), ("always", "always")])
def test_no_clock_chooses_how_texts_that_are_scored_are_written(few, tiny, asked, used):
    result, modes = train("pre-norm", data=few, **tiny), set()
    result.model.register_forward_hook(lambda *_: modes.add(current().prepacked_weights))
    with fast_paths(prepacked_weights=asked):
        zoo.evaluate(result.model, "translation", data=few.train, tokenizer=result.tokenizers, n_bootstrap=1)
    assert modes == {used}


def test_bfloat16_on_a_cpu_is_evaluated_as_at_the_end_of_training(tiny, tmp_path):
    options = {**tiny, "tokenizer": None, "bf16": True}
    result = train("explicando", REVERSE, output_dir=tmp_path / "m", **options)
    assert zoo.evaluate(tmp_path / "m").loss == result.report.heldout_loss
    # The model itself computes as the one that was saved: nothing of autocast is left.
    ids = torch.arange(3, 9)[None]
    with torch.no_grad():
        here, there = (
            one.eval()(ids, decoder_input_ids=ids).logits for one in (result.model, zoo.load(tmp_path / "m"))
        )
    assert torch.equal(here, there) and "forward" not in vars(result.model)
