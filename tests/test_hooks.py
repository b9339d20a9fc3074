"""`import zoo` is enough for transformers' Auto classes, in any order of imports."""

import importlib
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from preloaded import run_python

import zoo
import zoo.base.auto_registration
from zoo.base.auto_registration import AutoRegistration, is_watched
from zoo.base.errors import ZooWarning

MODULES = {
    "fakeformers/__init__.py": "",
    "fakeformers/config_auto.py": "REGISTERED = []",
    "fakeformers/auto.py": "from . import config_auto\nREGISTERED = []",
    "fakeformers/layers.py": "from . import auto\nclass Layer: ...",
    "fakeformers/trainer.py": "from . import auto\nfrom . import layers",
    "fakeformers/slow.py": "import time\nfrom . import auto\ntime.sleep(0.5)\nclass Slow: ...",
    "fakeformers/broken.py": "from . import auto\nraise ValueError('broken')",
    "fakeformers/importing_zoo.py": "from . import auto\nimport installer\nfrom . import trainer",
    "fakezoo/__init__.py": "",
    "fakezoo/models/__init__.py": "from .modeling import Model",
    "fakezoo/models/config.py": "class Config: ...",
    "fakezoo/models/modeling.py": "from fakeformers.layers import Layer\nfrom .config import Config\nclass Model: ...",
    "fakezoo/models/auto.py": """
        def register_config():
            from fakeformers.config_auto import REGISTERED
            from .config import Config
            REGISTERED.append(Config.__name__)

        def register_models():
            from fakeformers.auto import REGISTERED
            from . import Model
            REGISTERED.append(Model.__name__)
        """,
    "installer.py": "from zoo.base.auto_registration import AutoRegistration\nAutoRegistration().install()",
}
"""A library in which `layers` is half imported when `auto` is complete, and a zoo that needs both."""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, code in MODULES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(code))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(zoo.base.auto_registration, "WATCHED", ("fakeformers", "fakezoo.models"))
    registrations = {"fakeformers.config_auto": "register_config", "fakeformers.auto": "register_models"}
    monkeypatch.setattr(zoo.base.auto_registration, "REGISTRATIONS", registrations)
    monkeypatch.setattr(zoo.base.auto_registration, "HOME", "fakezoo.models.auto")
    finders = list(sys.meta_path)
    yield
    sys.meta_path[:] = finders
    for name in [name for name in sys.modules if name.partition(".")[0] in ("fakeformers", "fakezoo", "installer")]:
        del sys.modules[name]


@pytest.fixture
def watcher(library: None) -> AutoRegistration:
    return AutoRegistration()


def registered() -> tuple[list[str], list[str]]:
    """What is registered, once each, as configuration and as model."""
    configurations = dict.fromkeys(sys.modules["fakeformers.config_auto"].REGISTERED)
    return list(configurations), sys.modules["fakeformers.auto"].REGISTERED


COMPLETE = (["Config"], ["Model"])


@pytest.mark.parametrize(
    "first",
    [
        *("fakeformers.auto", "fakeformers.layers", "fakeformers.trainer"),
        *("fakezoo.models", "fakezoo.models.config", "fakezoo.models.modeling", "fakezoo.models.auto"),
    ],
)
class TestOrders:
    def test_installed_before(self, watcher: AutoRegistration, first: str) -> None:
        watcher.install()
        importlib.import_module(first)
        assert registered() == COMPLETE

    def test_installed_after(self, watcher: AutoRegistration, first: str) -> None:
        importlib.import_module(first)
        watcher.install()
        assert registered() == COMPLETE

    def test_it_is_out_of_the_way_when_it_is_done(self, watcher: AutoRegistration, first: str) -> None:
        watcher.install()
        assert watcher.find_spec("fakeformers") is not None
        importlib.import_module(first)
        assert watcher.find_spec("fakeformers") is None

    def test_installed_twice(self, watcher: AutoRegistration, first: str) -> None:
        AutoRegistration().install()
        watcher.install()
        importlib.import_module(first)
        assert registered() == (["Config"], ["Model", "Model"])


def test_nothing_is_imported_before_it_is_needed(watcher: AutoRegistration) -> None:
    watcher.install()
    importlib.import_module("fakeformers")
    assert not {"fakeformers.config_auto", "fakezoo.models"} & set(sys.modules)


def test_configurations_do_not_wait_for_models(watcher: AutoRegistration) -> None:
    watcher.install()
    importlib.import_module("fakeformers.config_auto")
    assert sys.modules["fakeformers.config_auto"].REGISTERED


def test_an_import_that_fails_is_survived(watcher: AutoRegistration) -> None:
    watcher.install()
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module("fakeformers.broken")
    assert registered() == COMPLETE


def test_it_may_be_installed_in_the_middle_of_the_librarys_import(library: None) -> None:
    importlib.import_module("fakeformers.importing_zoo")
    importlib.import_module("fakezoo.models")
    assert registered() == COMPLETE


def test_it_may_be_installed_while_another_thread_imports_the_library(watcher: AutoRegistration) -> None:
    thread = threading.Thread(target=importlib.import_module, args=("fakeformers.slow",))
    thread.start()
    while "fakeformers.auto" not in sys.modules:
        pass
    watcher.install()
    assert hasattr(sys.modules["fakeformers.slow"], "Slow"), "it waits"
    assert registered() == COMPLETE
    thread.join(timeout=10)


def test_a_registration_that_fails_leaves_the_library_usable(watcher: AutoRegistration, monkeypatch) -> None:
    monkeypatch.setattr(zoo.base.auto_registration, "HOME", "fakezoo.missing")
    watcher.install()
    with pytest.warns(ZooWarning, match="fakeformers will not know the zoo's checkpoints: ModuleNotFoundError"):
        importlib.import_module("fakeformers.trainer")
    assert hasattr(sys.modules["fakeformers.layers"], "Layer")


def test_modules_look_as_if_never_watched(watcher: AutoRegistration) -> None:
    importlib.import_module("fakeformers")
    untouched = type(sys.modules["fakeformers"].__loader__)
    watcher.install()
    module = importlib.import_module("fakeformers.layers")
    assert type(module.__loader__) is untouched and module.__spec__ is not None
    assert module.__spec__.loader is module.__loader__


def test_what_is_watched() -> None:
    for name in ("transformers", "transformers.models.auto", "peft.tuners.lora", "zoo.models.layers", "zoo.models"):
        assert is_watched(name) is True, name
    for name in ("transformers_extra", "zoo.models2", "zoo", "torch"):
        assert is_watched(name) is False, name


CHECK = """
from transformers import AutoConfig, AutoModelForCausalLM
config = AutoConfig.from_pretrained(FOLDER)
model = AutoModelForCausalLM.from_pretrained(FOLDER)
assert type(model).__name__ == "ZooForCausalLM", type(model)
assert config.variant == "pre-norm"
from peft import LoraConfig, get_peft_model
assert get_peft_model(model, LoraConfig()).peft_config["default"].target_modules == {"q_proj", "v_proj"}
"""

ORDERS = {
    "zoo-then-pipeline": "import zoo; from transformers import pipeline",
    "trainer-then-zoo": "from transformers import Trainer; import zoo",
    "zoo-models-first": "from zoo.models import ZooConfig",
    "zoo-then-peft": "import zoo, sys; assert not {'peft', 'torch'} & {*sys.modules}; import peft",
    "peft-then-zoo": "import peft; import zoo",
}
"""Where the real library starts, each in a process; the fake one above tries every other order."""


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has imported nothing of transformers or the zoo; a warning of the zoo's is an error.

    Where the code itself asks that PyTorch is not imported, it is a fresh one.
    """
    prelude = "import warnings; warnings.filterwarnings('error', message=\".*zoo's checkpoints\")\n"
    words = ["-c", f"{prelude}FOLDER = {str(folder)!r}\n{code}"]
    if "'torch'" not in code:
        return run_python(words, env=os.environ, cwd=folder)
    return subprocess.run([sys.executable, *words], check=False, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("checkpoint")
    zoo.build("pre-norm@tiny", "causal-lm", vocab_size=16).save_pretrained(folder)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "order",
    [
        pytest.param(code, id=name, marks=() if name in ("zoo-then-peft", "trainer-then-zoo") else pytest.mark.nightly)
        for name, code in ORDERS.items()
    ],
)
def test_auto_classes_load_checkpoints_in_any_order(checkpoint: Path, order: str) -> None:
    done = run(f"{order}\n{CHECK}", checkpoint)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_without_the_zoo_they_do_not(checkpoint: Path) -> None:
    done = run(CHECK, checkpoint)
    assert done.returncode and "transformer-zoo" in done.stderr
