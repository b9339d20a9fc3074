"""Quantised loading, where the quantisers are installed; what they ask of a model, everywhere."""

from pathlib import Path

import pytest
import torch
from torch import nn
from transformers import BitsAndBytesConfig, TorchAoConfig
from transformers.quantizers.base import get_keys_to_not_convert
from transformers_citizen.support import ASSORTED, ONE_OF_EACH, over, single, tiny


def torchao() -> TorchAoConfig:
    """Eight-bit weights by torchao."""
    return TorchAoConfig(pytest.importorskip("torchao.quantization").Int8WeightOnlyConfig())


def eight_bits() -> BitsAndBytesConfig:
    """Eight-bit matrix products by bitsandbytes."""
    pytest.importorskip("bitsandbytes")
    return BitsAndBytesConfig(load_in_8bit=True)


def four_bits() -> BitsAndBytesConfig:
    """Four-bit weights by bitsandbytes."""
    pytest.importorskip("bitsandbytes")
    return BitsAndBytesConfig(load_in_4bit=True)


@over(ASSORTED)
def test_the_head_is_kept_and_every_other_projection_is_not(pair):
    model = tiny(pair).model
    kept = get_keys_to_not_convert(model)
    assert "lm_head" in kept
    linear = {name for name, module in model.model.named_modules() if type(module) is nn.Linear}
    assert not any(name.startswith(tuple(kept)) for name in (f"model.{name}" for name in linear))


@over(ONE_OF_EACH)
@pytest.mark.parametrize(("quantised", "least"), [(torchao, 0.99), (eight_bits, 0.95), (four_bits, 0.6)])
def test_quantised_weights_give_nearly_the_same_logits(pair, quantised, least, tmp_path: Path):
    config = quantised()
    model = single(pair)
    model.save_pretrained(tmp_path)
    loaded = type(model).from_pretrained(tmp_path, quantization_config=config)
    types = {type(module) for name, module in loaded.named_modules() if name.endswith("q_proj")}
    weights = {type(parameter) for name, parameter in loaded.named_parameters() if name.endswith("q_proj.weight")}
    assert types != {nn.Linear} or weights != {nn.Parameter}
    plain, changed = (tiny(pair).run(one).float().flatten() for one in (model, loaded))
    assert torch.corrcoef(torch.stack([plain, changed]))[0, 1] > least
