"""Plugins as their users meet them: packages that are built, installed with pip, and found by a fresh process."""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from preloaded import run_python

pytestmark = pytest.mark.slow

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "1.2"

[project.entry-points."zoo.plugins"]
{plugin} = "{module}"

[tool.setuptools]
py-modules = ["{module}"]
"""

WAVE = '''
import torch
from zoo.models import POSITIONS, Position, Transformer
from zoo.registry import register


@POSITIONS.register("wave")
class WavePosition(Position):
    """One wave, added to every feature."""

    def embed(self, inputs_embeds, position_ids):
        return inputs_embeds + torch.sin(position_ids.float())[..., None]


@register("wave-former", tasks=("causal-lm", "masked-lm"), source="a test", defaults={"position": "wave"})
def wave_former(config):
    """A Transformer with a wave for positions."""
    return Transformer()
'''

BROKEN = "import a_module_that_is_missing"

COLLIDING = """
from zoo.models import Transformer
from zoo.registry import register


@register("another-vanilla", tasks=("causal-lm",), source="a test")
def another(config):
    return Transformer()


@register("vanilla", tasks=("causal-lm",), source="a test")
def vanilla(config):
    return Transformer()
"""

FAULTY = """
from torch import nn
from zoo.models import NORMS


@NORMS.register("narrow")
class Narrow(nn.Module):
    def __init__(self, width):
        super().__init__()


@NORMS.register("failing")
class Failing(nn.LayerNorm):
    def __init__(self, width, config):
        super().__init__(width)
        self.eps = width / 0


@NORMS.register("nothing")
class Nothing(nn.LayerNorm):
    def __init__(self, width, config):
        super().__init__(width)

    def forward(self, hidden_states):
        return None
"""

PLUGINS = {"wave": WAVE, "broken": BROKEN, "colliding": COLLIDING, "faulty": FAULTY}

PRELUDE = """
import json, os, warnings
import torch
torch.set_num_threads(1)
caught = warnings.catch_warnings(record=True)
recorded = caught.__enter__()
warnings.simplefilter("always")
import zoo
from zoo.base.errors import *
def plugin_warnings():
    return sorted(str(warning.message) for warning in recorded if issubclass(warning.category, PluginWarning))
def refusal(function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except ZooError as error:
        return f"{type(error).__name__}: {error}"
result = {}
"""


@dataclass(frozen=True)
class Environment:
    """A folder of installed plugins, and one to work in."""

    site: Path
    folder: Path

    def run(self, code: str, *, installed: bool = True, switch: str | None = None) -> Any:
        """Run code in a fresh process and return what it left in `result`."""
        environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "ZOO_PLUGINS")}
        if installed:
            environment["PYTHONPATH"] = str(self.site)
        if switch is not None:
            environment["ZOO_PLUGINS"] = switch
        program = f"{PRELUDE}{textwrap.dedent(code)}\nprint(json.dumps(result))"
        run = run_python(["-c", program], env=environment, cwd=self.folder)
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """Build and install one package for every plugin."""
    folder: Path = tmp_path_factory.mktemp("plugins")
    packages = []
    for plugin, code in PLUGINS.items():
        package = folder / plugin
        package.mkdir()
        module = f"zoo_{plugin}"
        (package / f"{module}.py").write_text(code)
        (package / "pyproject.toml").write_text(
            PYPROJECT.format(distribution=f"zoo-{plugin}", plugin=plugin, module=module)
        )
        packages.append(str(package))
    offline = ["--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check", "--quiet"]
    site = folder / "site"
    subprocess.run([sys.executable, "-m", "pip", "install", *offline, "--target", str(site), *packages], check=True)
    return Environment(site, folder)


@pytest.fixture(scope="module")
def with_all(environment: Environment) -> Any:
    """What one process sees that has every plugin installed."""
    return environment.run(
        """
        result["variants"] = zoo.list_variants()
        result["warnings"] = plugin_warnings()
        zoo.list_variants()
        result["warnings_later"] = plugin_warnings()
        card = zoo.describe("wave-former@tiny")
        result["card"] = [card.summary, card.distribution, card.version, card.module, card.num_parameters > 0]
        result["vanilla"] = zoo.describe("vanilla").distribution

        model = zoo.build("wave-former@tiny", "causal-lm", vocab_size=16)
        model.save_pretrained("wave-former")
        inputs = torch.arange(8)[None]
        result["shape"] = list(model(inputs).logits.shape)

        waved = zoo.build("pre-norm@tiny", "causal-lm", position="wave", vocab_size=16, seed=0)
        plain = zoo.build("pre-norm@tiny", "causal-lm", position="none", vocab_size=16, seed=0)
        result["providers"] = [model.config.providers, waved.config.providers]
        result["wave_matters"] = not torch.allclose(waved(inputs).logits, plain(inputs).logits)
        result["misspelled"] = refusal(zoo.build, "wave-forner")
        """
    )


def test_a_plugins_variant_is_listed_described_and_built(with_all: Any) -> None:
    assert "wave-former" in with_all["variants"]
    assert with_all["card"] == ["A Transformer with a wave for positions.", "zoo-wave", "1.2", "zoo_wave", True]
    assert with_all["shape"] == [1, 8, 16]
    assert with_all["providers"] == [{"variant": "zoo-wave", "position": "zoo-wave"}, {"position": "zoo-wave"}]
    assert "did you mean 'wave-former'" in with_all["misspelled"]


def test_a_fault_of_a_plugin_is_named_with_its_file_and_line(environment: Environment) -> None:
    result = environment.run(
        """
        from click.testing import CliRunner
        from zoo.cli.main import cli
        for norm in ("narrow", "failing", "nothing"):
            run = CliRunner().invoke(cli, ["summary", f"gpt2-style@tiny:norm={norm}"])
            result[norm] = run.stderr
        """,
        switch="faulty",
    )
    place = environment.site / "zoo_faulty.py"
    start = "zoo: error: the plugin of zoo-faulty 1.2"
    assert result["narrow"].startswith(f"{start} ({place}, line 8) failed: TypeError: Narrow.__init__() takes 2")
    assert result["failing"].startswith(f"{start} ({place}, line 16) failed: ZeroDivisionError: ")
    assert "plugins are loaded (zoo-faulty 1.2), and ZOO_PLUGINS= switches them off" in result["nothing"]


def test_a_plugins_position_is_there_for_every_variant(with_all: Any) -> None:
    assert with_all["wave_matters"]


def test_failing_plugins_are_reported_once_and_left_out(environment: Environment, with_all: Any) -> None:
    broken, colliding = with_all["warnings"]
    assert broken == (
        f"plugin 'broken' of zoo-broken 1.2 ({environment.site / 'zoo_broken.py'}, line 1) is left out: "
        "ModuleNotFoundError: No module named 'a_module_that_is_missing'"
    )
    place = environment.site / "zoo_colliding.py"
    assert colliding.startswith(
        f"plugin 'colliding' of zoo-colliding 1.2 ({place}, line 11) is left out: NameCollisionError: "
    )
    assert "'vanilla' of zoo_colliding (zoo-colliding 1.2) exists already" in colliding
    assert "(transformer-zoo " in colliding
    assert with_all["warnings_later"] == with_all["warnings"]


def test_a_plugin_that_collides_leaves_nothing_behind(with_all: Any) -> None:
    assert "another-vanilla" not in with_all["variants"]
    assert with_all["vanilla"] == "transformer-zoo"


def test_the_auto_classes_find_the_plugin_of_a_checkpoint(environment: Environment, with_all: Any) -> None:
    result = environment.run(
        """
        from transformers import AutoModelForCausalLM
        model = AutoModelForCausalLM.from_pretrained("wave-former")
        result = [model.config.variant, model.config.position, plugin_warnings()]
        """,
        switch="wave",
    )
    assert result == ["wave-former", "wave", []]


def test_plugins_that_are_switched_off_do_not_exist(environment: Environment, with_all: Any) -> None:
    result = environment.run(
        """
        from transformers import AutoModelForCausalLM
        result["listed"] = "wave-former" in zoo.list_variants()
        result["build"] = refusal(zoo.build, "wave-former")
        result["load"] = refusal(AutoModelForCausalLM.from_pretrained, "wave-former")
        result["warnings"] = plugin_warnings()
        """,
        switch="",
    )
    assert not result["listed"]
    assert result["build"].startswith("UnknownVariantError: unknown variant 'wave-former'")
    assert "zoo-wave" in result["load"]
    assert "ZOO_PLUGINS" in result["load"]
    assert result["warnings"] == []


def test_a_checkpoint_names_the_plugin_to_install(environment: Environment, with_all: Any) -> None:
    result = environment.run(
        """
        from transformers import AutoModelForCausalLM
        result = refusal(AutoModelForCausalLM.from_pretrained, "wave-former")
        """,
        installed=False,
    )
    assert result.startswith("MissingPluginError: ")
    assert "pip install zoo-wave" in result
