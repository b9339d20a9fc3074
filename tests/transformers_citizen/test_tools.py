"""Tools of others that take a decoder by its folder: lm-evaluation-harness and TRL, where they are installed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import zoo

WORDS = ["<pad>", "<s>", "</s>", "<unk>", "the", "cat", "dog", "sat", "ran", "yes", "no"]
TRAINING = {
    "max_steps": 2,
    "per_device_train_batch_size": 2,
    "report_to": [],
    "use_cpu": True,
    "bf16": False,
    "save_strategy": "no",
    "disable_tqdm": True,
}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a tiny decoder and its tokenizer."""
    folder = str(tmp_path_factory.mktemp("decoder"))
    ids = Tokenizer(models.WordLevel({word: place for place, word in enumerate(WORDS)}, unk_token="<unk>"))
    ids.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    PreTrainedTokenizerFast(tokenizer_object=ids, **special).save_pretrained(folder)
    zoo.build("llama-style@tiny", "causal-lm", vocab_size=len(WORDS), seed=0).save_pretrained(folder)
    return folder


@pytest.mark.slow
def test_the_harness_evaluates_a_decoder(decoder: str, tmp_path: Path) -> None:
    harness = pytest.importorskip("lm_eval")
    from lm_eval.tasks import TaskManager

    rows = [{"question": f"the {animal} sat", "answer": place % 2} for place, animal in enumerate(["cat", "dog"] * 2)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {
        "task": "animals",
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(tmp_path / "rows.jsonl")}},
        "test_split": "test",
        "output_type": "multiple_choice",
        "doc_to_text": "question",
        "doc_to_choice": ["yes", "no"],
        "doc_to_target": "answer",
    }
    (tmp_path / "animals.yaml").write_text(json.dumps(task))  # JSON is YAML
    results = harness.simple_evaluate(
        model="hf",
        model_args={"pretrained": decoder, "dtype": "float32"},
        device="cpu",
        tasks=["animals"],
        task_manager=TaskManager(include_path=str(tmp_path)),
    )
    assert results["results"]["animals"]["acc,none"] == 0.5, "the same question has both answers"


@pytest.mark.slow
@pytest.mark.parametrize("method", ["SFT", "DPO", "GRPO", "KTO"])
def test_trl_trains_a_decoder(method: str, decoder: str, tmp_path: Path) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    rows: dict[str, dict[str, Any]] = {
        "SFT": {"text": "the cat sat"},
        "DPO": {"prompt": "the cat ", "chosen": "sat", "rejected": "ran"},
        "GRPO": {"prompt": "the cat"},
        "KTO": {"prompt": "the cat ", "completion": "sat", "label": True},
    }
    options: dict[str, Any] = {}
    settings = dict(TRAINING)
    if method == "GRPO":
        options["reward_funcs"] = lambda completions, **kwargs: [float(len(text)) for text in completions]
        settings |= {"num_generations": 2, "max_completion_length": 3}
    trainer = getattr(trl, f"{method}Trainer")(
        model=decoder,
        args=getattr(trl, f"{method}Config")(output_dir=str(tmp_path), **settings),
        train_dataset=Dataset.from_list([rows[method]] * 8),
        **options,
    )
    assert isinstance(trainer.model, zoo.models.ZooForCausalLM)
    assert trainer.train().global_step == 2


@pytest.mark.slow
@pytest.mark.parametrize("variant", ["llama-style", "lfm2-style", "qwen3-next-style"])
@pytest.mark.parametrize(
    "settings",
    [{"padding_free": True, "max_length": None}, {"packing": True, "max_length": 16}],
    ids=lambda settings: next(iter(settings)),
)
def test_trl_packs_documents_that_stay_apart(
    variant: str, settings: dict[str, Any], decoder: str, tmp_path: Path
) -> None:
    trl = pytest.importorskip("trl")
    from datasets import Dataset

    model = zoo.build(f"{variant}@tiny", "causal-lm", vocab_size=len(WORDS), seed=0)
    trainer = trl.SFTTrainer(
        model=model,
        processing_class=PreTrainedTokenizerFast.from_pretrained(decoder),
        args=trl.SFTConfig(output_dir=str(tmp_path), **TRAINING, **settings),
        train_dataset=Dataset.from_list([{"text": "the cat sat"}, {"text": "yes the dog ran"}, {"text": "no"}] * 4),
    )
    batch = next(iter(trainer.get_train_dataloader()))
    ids, places = batch["input_ids"], batch["position_ids"]
    starts = [place for place in range(ids.shape[1]) if places[0, place] == 0]
    assert ids.shape[0] == 1
    assert len(starts) > 1
    with torch.no_grad():
        together = model(input_ids=ids, position_ids=places, use_cache=False).logits[0]
        lengths = torch.tensor([*starts, ids.shape[1]]).diff().tolist()
        alone = [model(text[None], use_cache=False).logits[0] for text in ids[0].split(lengths)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)
    assert trainer.train().global_step == 2
