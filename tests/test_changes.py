"""The changes that CONTRIBUTING.md shows, made in a copy of the library: what they add works, or is refused by name."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from preloaded import run_python

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PATCHES = re.findall(r"```diff\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.DOTALL)
FILES = [set(re.findall(r"^\+\+\+ b/(.*)$", patch, re.MULTILINE)) for patch in PATCHES]

USE = """
import torch
import zoo
print(zoo.__file__)
from transformers import ArceeConfig, ArceeForCausalLM
from zoo.analysis.drawing import draw
from zoo.base.errors import ZooError
from zoo.building.settings import describe_setting
from zoo.converters.errors import ExportError, NotConvertibleError
from zoo.converters.native.declared import NATIVE
from zoo.converters.planning import plan_engines, plan_export
from zoo.converters.originals.torch_nn import TorchNN
from zoo.hub.cards import describe_axes

SIZES = dict(vocab_size=31, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=24)

import cubed_relu
model = zoo.build("gpt2-style", "causal-lm", hidden_act="cubed-relu", **SIZES)
assert any(isinstance(module, cubed_relu.CubedReLU) for module in model.modules())

named = zoo.config("llama-style", "causal-lm").to_dict()
assert named["head_gain"] is False and describe_setting("head_gain").default is False
try:
    zoo.config("llama-style", head_gain=3)
except ZooError as error:
    assert "head_gain=3 was given; it must be bool" in str(error)
for variant, task, target in (("llama-style", "causal-lm", "llama"), ("bert-style", "masked-lm", "bert"),
                              ("marian-style", "seq2seq-lm", "ctranslate2")):
    plain, gained = (zoo.build(variant, task, seed=0, **SIZES, head_gain=gain) for gain in (False, True))
    assert plan_export(plain)[0].exact
    plans = plan_export(gained)
    for plan in plans:
        assert plan.route is None or "head_gain=True, it has False" in plan.obstacles, plan
    assert sum(plan.route is not None for plan in plans) > 3
    for plan in plan_engines(gained):
        expresses = plan.target in ("bundle", "onnx", "openvino")  # they take the model's own code, or trace it
        unable = not expresses and plan.route is None and "head_gain" not in plan.why_not
        assert expresses or unable or "head_gain=True" in plan.why_not, plan
    try:
        zoo.export(gained, "never", target)
    except ExportError as error:
        assert "head_gain=True" in str(error)
    else:
        raise AssertionError(target)
body = zoo.build("pre-norm", "feature-extraction", **SIZES, position="none", head_gain=True)
try:
    TorchNN().plan_back(type(body), body.config)
except NotConvertibleError as error:
    assert "head_gain is True, it has False" in str(error)
settings = {name: value for name, value in gained.config.to_dict().items() if value}
assert "head gain" in dict(describe_axes(settings))["Attention"]
assert any("head gain" in step.detail for step in draw("llama-style:head_gain=true").steps())
assert [one.axis for one in zoo.diff("llama-style", "llama-style:head_gain=true")] == ["head_gain", "parameters"]

native = ArceeForCausalLM(ArceeConfig(**SIZES, num_key_value_heads=2, max_position_embeddings=32)).eval()
native.save_pretrained("arcee")
assert NATIVE.origin("arcee").module.endswith("families.arcee")
converted = zoo.convert("arcee")
ids = torch.tensor([[3, 4, 5]])
torch.testing.assert_close(converted(ids).logits, native(ids).logits)
assert "arcee" in [plan.target for plan in plan_export(converted) if plan.exact]
"""


def test_changes_touch_as_few_files_as_documented():
    activation, setting, model_type = FILES
    assert (len(activation), len(model_type)) == (1, 1) and len(setting | {"zoo/building/keywords.py"}) == 3


def test_changes_work_in_a_copy_of_the_library(tmp_path):
    code = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(ROOT / "zoo", tmp_path / "zoo", ignore=code)
    for room in ("registry", "converters"):
        shutil.copytree(ROOT / room, tmp_path / "zoo" / room, ignore=code)
    families = tmp_path / "zoo/converters/native/families"
    text = (families / "llama.py").read_text(encoding="utf-8")
    text, taken_out = re.subn(r"class Arcee.*?\n\n\n", "", text, flags=re.DOTALL)
    assert taken_out == 1
    (families / "llama.py").write_text(text, encoding="utf-8")
    for patch in PATCHES:
        subprocess.run(["git", "apply", "--unidiff-zero", "-"], input=patch, text=True, cwd=tmp_path, check=True)
    done = run_python(["-c", USE], env=os.environ, cwd=tmp_path)
    assert done.returncode == 0 and str(tmp_path) in done.stdout, done.stderr[-3000:]
    assert not (tmp_path / "never").exists()
