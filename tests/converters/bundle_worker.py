"""Uses a bundle as a model of transformers, where the zoo cannot be imported: `bundle_worker.py FOLDER`."""

import copy
import sys
from pathlib import Path

sys.modules["zoo"] = None  # type: ignore[assignment]

import torch  # noqa: E402
from peft import LoraConfig, get_peft_model  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    Trainer,
    TrainingArguments,
)

torch.set_num_threads(1)
torch.manual_seed(0)
FOLDER = sys.argv[1]
CONFIG = AutoConfig.from_pretrained(FOLDER, trust_remote_code=True)
HAS_ENCODER = CONFIG.is_encoder_decoder
IDS = torch.randint(3, 18, (3, 6))
GIVEN = {"input_ids": IDS, "labels": IDS}


def load(folder=FOLDER, **options):
    auto_class = AutoModelForSeq2SeqLM if HAS_ENCODER else AutoModelForCausalLM
    return auto_class.from_pretrained(folder, trust_remote_code=True, **options).eval()


@torch.no_grad()
def check_backends(model):
    sdpa = model(**GIVEN)
    eager = load(attn_implementation="eager")(**GIVEN, output_attentions=True, output_hidden_states=True)
    assert torch.allclose(sdpa.logits, eager.logits, atol=1e-5)
    weights = eager.decoder_attentions if HAS_ENCODER else eager.attentions
    assert weights[0].shape[1] == CONFIG.num_attention_heads
    assert torch.allclose(sdpa.loss, model(**GIVEN, skip_logits=True).loss)


def check_generation(model):
    text = {"max_new_tokens": 5, "min_new_tokens": 5, "do_sample": False}
    tokens = model.generate(IDS, **text)
    assert torch.equal(tokens, model.generate(IDS, use_cache=False, **text))
    assert torch.equal(tokens, model.generate(IDS, cache_implementation="static", **text))
    beams = model.generate(IDS, num_beams=3, **text)
    assert torch.equal(beams, model.generate(IDS, num_beams=3, use_cache=False, **text))
    found = model.generate(IDS, output_scores=True, return_dict_in_generate=True, **text)
    of_tokens = model.compute_transition_scores(found.sequences, found.scores, normalize_logits=True)
    steps = torch.stack(found.scores, dim=1).log_softmax(-1)
    assert torch.allclose(of_tokens, steps.gather(2, found.sequences[:, -5:, None])[..., 0])


def check_checkpointing():
    model = load(dropout=0.0, attention_dropout=0.0, activation_dropout=0.0).train()
    model(**GIVEN).loss.backward()
    plain = {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.requires_grad}
    model.zero_grad()
    model.gradient_checkpointing_enable()
    model(**GIVEN).loss.backward()
    for name, gradient in plain.items():
        assert torch.allclose(model.get_parameter(name).grad, gradient, atol=1e-6), name


def check_training(model):
    settings = {"report_to": [], "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    trainer = Trainer(
        load(),
        TrainingArguments("run", max_steps=2, per_device_train_batch_size=2, **settings),
        train_dataset=[{"input_ids": row, "labels": row} for row in IDS],
    )
    assert trainer.train().training_loss > 0
    trainer.save_model("tuned")
    assert {"modeling_zoo.py", "configuration_zoo.py"} <= {path.name for path in Path("tuned").iterdir()}
    with torch.no_grad():
        before, after, again = (each.eval()(**GIVEN).logits for each in (model, trainer.model, load("tuned")))
    assert torch.equal(after, again) and not torch.equal(before, after)


def check_adapters(model):
    task = "SEQ_2_SEQ_LM" if HAS_ENCODER else "CAUSAL_LM"
    adapted = get_peft_model(load(), LoraConfig(target_modules=["q_proj", "v_proj"], task_type=task))
    adapted(**GIVEN).loss.backward()
    trained = [name for name, parameter in adapted.named_parameters() if parameter.grad is not None]
    assert trained and all("lora" in name for name in trained)
    adapted.eval().merge_and_unload().save_pretrained("merged")
    with torch.no_grad():
        assert torch.allclose(load("merged")(**GIVEN).logits, model(**GIVEN).logits, atol=1e-5)


def main():
    model = load()
    check_backends(model)
    check_generation(model)
    check_checkpointing()
    check_training(model)
    check_adapters(model)
    if not HAS_ENCODER:
        head = AutoModelForSequenceClassification.from_pretrained(FOLDER, trust_remote_code=True, num_labels=3)
        assert head(input_ids=IDS).logits.shape == (3, 3)
    assert copy.deepcopy(CONFIG).to_dict() == CONFIG.to_dict()
    print("all of it")


if __name__ == "__main__":
    main()
