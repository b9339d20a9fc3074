"""Losses, masks and dtypes of ejected files that no proof runs, against the zoo's model."""

import runpy
from pathlib import Path

import pytest
import torch

import zoo
from zoo.analysis.eject.ejecting import text_of
from zoo.analysis.eject.proof import randomise


def both(folder: Path, name: str, task: str):
    """A model with drawn weights, and that of its file, in float64."""
    model = zoo.build(name, task, seed=0)
    randomise(model)
    model.save_pretrained(folder)
    (folder / "model.py").write_text(text_of(model.config, task, name), encoding="utf-8")
    file = runpy.run_path(str(folder / "model.py"), run_name="ejected")["load"](folder)
    return model.double().eval(), file.double().eval()


BALANCED = "output_router_logits=true,router_aux_loss_coef=1.0"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        (f"mixtral-style@tiny:{BALANCED}", "causal-lm"),
        (f"mixtral-style@tiny:num_nextn_predict_layers=2,{BALANCED}", "causal-lm"),
        (f"pre-norm@tiny:dropout=0.0,feed_forward=moe,{BALANCED}", "seq2seq-lm"),
    ],
)
def test_what_follows_the_last_label_is_padding_to_routers(name, task, tmp_path):
    model, file = both(tmp_path, name, task)
    ids = torch.randint(5, model.config.vocab_size, (3, 11), generator=torch.Generator().manual_seed(0))
    labels = ids.clone()
    labels[0, 8:] = labels[1, 2:6] = labels[1, 10] = labels[2, 1:] = -100
    ours, theirs = model.train()(ids, labels=labels).loss, file.train()(ids, labels=labels)[1]
    assert theirs.item() == pytest.approx(ours.item(), abs=1e-5)
    ours.backward()
    theirs.backward()
    for name, weight in file.named_parameters():
        torch.testing.assert_close(weight.grad, model.get_parameter(name).grad, atol=1e-5, rtol=1e-4)


def test_labels_decide_of_what_kind_a_classification_is(tmp_path):
    model, file = both(tmp_path, "pre-norm@tiny:num_labels=3", "sequence-classification")
    ids, several = torch.arange(5, 29).view(4, 6), torch.tensor([[1.0, 1, 0], [0, 1, 1], [0, 0, 1], [0, 0, 0]])
    for labels in (several.double(), torch.tensor([0, 2, -100, 1]), torch.tensor([[0], [2], [-100], [1]])):
        model.config.problem_type = None  # transformers writes there what it finds
        assert file(ids, labels=labels)[1].item() == pytest.approx(model(ids, labels=labels).loss.item(), abs=1e-6)


@pytest.mark.parametrize("task", ["sequence-classification", "token-classification"])
def test_a_file_with_layers_without_attention_refuses_padding_before_texts(task, tmp_path):
    model, file = both(tmp_path, "lfm2-style@tiny", task)
    ids, mask = torch.arange(5, 29).view(4, 6), torch.ones(4, 6, dtype=torch.long)
    mask[1, 3:] = 0
    wanted = model(ids, attention_mask=mask).logits
    found = file(ids, attention_mask=mask)[0]
    real = mask.bool() if found.ndim == 3 else slice(None)
    torch.testing.assert_close(found[real], wanted[real])
    with pytest.raises(AssertionError, match="padding has to follow the tokens of a text"):
        file(ids, attention_mask=mask.flip(1))


@torch.no_grad()
def test_a_file_in_16_bits_chooses_the_same_experts(tmp_path):
    """Biases that balance them differ by less than 16 bits hold."""
    model, file = both(tmp_path, "deepseek-v3-style@tiny", "causal-lm")
    for name, bias in model.named_buffers():
        if name.endswith("balance_bias"):
            bias.copy_(1 + torch.linspace(0, 1e-3, len(bias)).roll(len(bias) // 2))
            file.get_parameter(name).copy_(bias)
    ids = torch.randint(5, model.config.vocab_size, (2, 200), generator=torch.Generator().manual_seed(0))
    model, file = model.half(), file.half()
    wanted = model(ids).logits
    torch.testing.assert_close(file(ids)[0], wanted, atol=0.02, rtol=0.02)


@torch.no_grad()
def test_a_file_in_16_bits_pools_the_last_token_of_a_long_text(tmp_path):
    """Not every number is one of bfloat16."""
    settings = "classifier_pooling=last,max_position_embeddings=520"
    model, file = both(tmp_path, f"pre-norm@tiny:{settings}", "sequence-classification")
    ids = torch.randint(5, model.config.vocab_size, (2, 520), generator=torch.Generator().manual_seed(0))
    found = file.bfloat16()(ids)[0]
    torch.testing.assert_close(found, model(ids).logits, atol=0.05, rtol=0.05, check_dtype=False)


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_a_file_pools_a_text_without_tokens_as_the_model_does(pooling, tmp_path):
    model, file = both(tmp_path, f"pre-norm@tiny:classifier_pooling={pooling}", "sequence-classification")
    ids, mask = torch.arange(5, 17).view(2, 6), torch.ones(2, 6, dtype=torch.long)
    mask[1] = 0
    torch.testing.assert_close(file(ids, attention_mask=mask)[0], model(ids, attention_mask=mask).logits)
