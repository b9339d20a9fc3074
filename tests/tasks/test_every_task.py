"""Every task, from data to the same scores of a saved model; what a comparison asks of it; what it cannot use."""

import dataclasses
import json

import pytest
from datasets import Dataset

import zoo
from zoo.base.errors import ConfigError
from zoo.comparison.files import CHECKPOINT
from zoo.comparison.run.reload import check
from zoo.comparison.run.worker import work
from zoo.comparison.setup.job import Job
from zoo.data.tasks import TASKS, DataError, Outputs, Score
from zoo.data.tasks.pairs import PairsTask
from zoo.training.recipe import recipe_for

TINY = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
ARGUMENTS = {"max_steps": 3, "warmup_steps": 1, "logging_steps": 1, "use_cpu": True, "per_device_train_batch_size": 8}
FEW = "train_examples=24,heldout_examples=6"
VARIANTS = {
    **{"translation": "pre-norm", "language-modeling": "gpt2-style", "masked-language-modeling": "pre-norm"},
    **{"masked-next-token": "gpt-bert-style", "span-corruption": "t5-style", "text-classification": "llama-style"},
    **{"token-classification": "pre-norm", "compression": "llama-style"},
}
IN_PLACE = {
    **{"compression": "length=8", "multi-query-recall": "length=8,num_pairs=2", "in-context-recall": "length=12"},
    **{"selective-copying": "length=8,num_copied=3", "memorization": "length=8"},
    **{"aligned-addition": "length=3", "modular-addition": "num_symbols=20"},
}
RAW_TEXT = ("language-modeling", "masked-language-modeling", "masked-next-token", "span-corruption")
OPTIONS = dict.fromkeys(RAW_TEXT, "block_size=20") | {task: f"{FEW},{options}" for task, options in IN_PLACE.items()}
SCORES = {
    "translation": {"bleu", "chrf"},
    "language-modeling": {"perplexity", "bits_per_byte"},
    "masked-language-modeling": {"perplexity", "accuracy"},
    "masked-next-token": {"perplexity", "accuracy"},
    "span-corruption": {"perplexity", "accuracy"},
    "text-classification": {"accuracy", "f1"},
    "token-classification": {"f1", "accuracy"},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    sentences = [f"Line {i} is {'odd' if i % 2 else 'even'}." for i in range(30)]
    rows = {
        "text-classification": [{"text": text, "label": text.split()[-1]} for text in sentences],
        "token-classification": [{"tokens": text.split(), "tags": ["O", "B-N", "O", "O"]} for text in sentences],
        "translation": [{"a": text, "b": text.upper()} for text in sentences],
    }
    files = {}
    for name, examples in rows.items():
        for split, part in (("train", examples[:24]), ("heldout", examples[24:])):
            (folder / name).mkdir(exist_ok=True)
            file = folder / name / f"{split}.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in part))
        files[name] = folder / name
    for name in RAW_TEXT:
        (folder / name).mkdir()
        (folder / name / "train.txt").write_text("\n".join(sentences))
        (folder / name / "heldout.txt").write_text("\n".join(sentences[24:]))
        files[name] = folder / name
    return files


def named(task):
    """Half of the synthetic tasks for language models, half for encoder-decoders."""
    few = f"{FEW},length=5,min_length=2,decoder_only={task not in ('copy', 'reverse')}"
    return f"{task}:{OPTIONS.get(task, few if task not in VARIANTS else '')}".rstrip(":")


@pytest.mark.thorough
@pytest.mark.parametrize("task", sorted(TASKS))
def test_a_saved_model_gets_the_scores_of_its_training(task, data, tmp_path):
    """Without naming the data and options that it was trained with."""
    folder = tmp_path / "model"
    variant = VARIANTS.get(task, "pre-norm" if task in ("copy", "reverse") else "gpt2-style")
    by_character = task in ("language-modeling", "masked-language-modeling")
    options = {"tokenizer": "character" if by_character else {"kind": "word", "min_frequency": 1}, **ARGUMENTS}
    writes = recipe_for(named(task)).data_task().outputs == Outputs.GENERATED
    generation = {"num_beams": 1, "max_length": 8} if writes else None
    options |= {"settings": TINY, "generation": generation, "progress": False}
    result = zoo.train(variant, named(task), data=data.get(task), output_dir=folder, **options)
    found = zoo.evaluate(folder, n_bootstrap=20)
    report = result.report
    assert found.task == report.task == task
    assert set(found.scores) == SCORES.get(task, {"exact_match", "symbol_accuracy"})
    assert TASKS.get(task).main_score in found.scores and found.loss == report.heldout_loss and found.repeats_training
    scores, shown = ({name: one.value for name, one in of.scores.items()} for of in (found, report))
    assert scores == shown and found.outputs == result.outputs
    for name, score in found.scores.items():
        if name not in ("perplexity", "bits_per_byte"):
            assert score.interval[0] <= score.value <= score.interval[1]
    if task == "language-modeling":
        text = (data[task] / "heldout.txt").read_text()
        assert found.target_tokens == len(text) - 1
    examples = 0 if TASKS.get(task).outputs == Outputs.NONE or task in RAW_TEXT else 6
    assert len(found.outputs) == examples


@pytest.mark.parametrize("task", ["language-modeling", "token-classification"])
def test_a_comparison_loads_any_tasks_model_again(task, data, tmp_path):
    recipe = recipe_for(named(task)).changed(model=TINY, arguments=ARGUMENTS)
    data_task = recipe.data_task()
    splits = data_task.load(data.get(task))
    tokenizers = data_task.train_tokenizers(splits.train, kind="word", min_frequency=1)
    tokenizers.save(tmp_path / "tokenizer")
    name = "gpt2-style" if task == "language-modeling" else "pre-norm"
    place = data.get(task) and str(data[task])
    recipe = dataclasses.asdict(recipe)
    job = Job(name, name, str(tmp_path), str(tmp_path / "tokenizer"), recipe, 0, data=place, progress=False)
    written = work(job)
    assert written["costs"]["flops_per_token"] > 0 and written["curve"][-1]["heldout_loss"] > 0
    assert written["curve"][-1]["tokens"] == written["report"]["train_tokens"]
    answer = check(tmp_path)
    assert answer["equal"] and answer["outputs_equal"]
    classes = {"language-modeling": "AutoModelForCausalLM", "token-classification": "AutoModelForTokenClassification"}
    assert answer["auto_class"] == classes[task]
    model = zoo.load(tmp_path / CHECKPOINT)
    first = next(model.parameters())
    first.data = first.data.flip(0)
    model.save_pretrained(tmp_path / CHECKPOINT)
    assert not check(tmp_path)["equal"]


def test_what_a_model_is_not_made_for_is_refused(tmp_path):
    task = TASKS.get("translation")
    task.train_tokenizers(task.load().heldout, kind="word").save(tmp_path)
    zoo.build("gpt2-style@tiny", "causal-lm", vocab_size=50).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"task 'translation' needs a model for seq2seq-lm .*ZooForCausalLM"):
        zoo.evaluate(tmp_path, "translation")
    with pytest.raises(ConfigError, match=r"has no record of its training data; name the examples .*--heldout"):
        zoo.evaluate(tmp_path)
    with pytest.raises(DataError, match="label 'c' is unknown; valid: a, b"):
        labels = TASKS.get("text-classification").configured({"labels": ["a", "b"]})
        labels.encode(Dataset.from_dict({"text": ["x"], "label": ["c"]}), task.train_tokenizers(task.load().heldout))


def test_an_answer_is_written_right_exactly_where_each_symbol_is_predicted_right(tmp_path):
    task = "copy:decoder_only=true,length=3,min_length=2,num_symbols=4,train_examples=50,heldout_examples=30"
    settings = {**TINY, "hidden_size": 32}
    arguments = {**ARGUMENTS, "max_steps": 30, "learning_rate": 1e-2, "per_device_train_batch_size": 16}
    zoo.train("gpt2-style", task, settings=settings, output_dir=tmp_path / "model", progress=False, **arguments)
    found = zoo.evaluate(tmp_path / "model", n_bootstrap=1)
    examples = recipe_for(task).data_task().load().heldout
    prompts = [f"{question} <bos>" for question in examples["question"]]
    written = [one.text.strip() for one in zoo.generate(tmp_path / "model", prompts, max_new_tokens=6)]
    right = [text == answer for text, answer in zip(written, examples["answer"], strict=True)]
    assert 0 < sum(right) < len(right)
    predicted = zip(found.outputs, written, right, strict=True)
    assert all(output == text for output, text, was_right in predicted if was_right)
    assert found.scores["exact_match"].value == pytest.approx(100 * sum(right) / len(right), abs=1e-3)


def test_a_plugins_task_needs_no_recipe(data, monkeypatch):
    @dataclasses.dataclass(frozen=True)
    class Shouting(PairsTask):
        name = "shouting"
        main_score = "shouted"
        mark: str = "!"

        def score(self, predictions, examples, *, n_bootstrap=1):
            return {"shouted": Score("Shouted", float(len(predictions.outputs)), self.mark)}

    monkeypatch.setattr(TASKS, "_items", dict(TASKS._items))
    TASKS.register("shouting", Shouting())
    options = {"settings": TINY, "generation": {"max_new_tokens": 4}, "progress": False, **ARGUMENTS}
    result = zoo.train("pre-norm", "shouting:mark='!!'", data=data["translation"], **options)
    assert result.report.task == "shouting" and result.report.scores == {"shouted": Score("Shouted", 6.0, "!!")}
