"""Whatever source decides a run changes its name, and nothing else does."""

import sys
from pathlib import Path

import pytest

import zoo.registry
from zoo.analysis.measuring import flops_per_token
from zoo.comparison.pipeline import set_up
from zoo.comparison.request.request import Request
from zoo.comparison.setup.jobs import JobMaker
from zoo.comparison.setup.shared_inputs import OWN, digest_of_modules, digest_of_the_zoo, sources_of
from zoo.data.tasks import find_task
from zoo.fast import fast_paths
from zoo.training import Recipe

FILES = {
    "mine/__init__.py": "from .variant import build\n",
    "mine/variant.py": "import json\nimport torch\nimport zoo\nfrom . import parts\nfrom helpers import scale\n",
    "mine/parts.py": "def late():\n    from .deep.norms import norm\n",
    "mine/deep/__init__.py": "",
    "mine/deep/norms.py": "norm = 1\n",
    "helpers.py": "scale = 2\n",
    "stranger.py": "import mine\n",
}


def write(folder: Path) -> None:
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Modules of a user, which nothing may import only to look at them."""
    write(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def found_in(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for _, file in sources_of("mine.variant")}


def test_imports_are_followed_as_far_as_they_are_the_users(package: Path) -> None:
    assert found_in(package) == set(FILES) - {"stranger.py"}
    assert not {"mine", "mine.variant", "mine.deep", "helpers"} & set(sys.modules)


@pytest.mark.parametrize("edited", FILES)
def test_an_edit_counts_where_it_is_imported(package: Path, edited: str) -> None:
    before = digest_of_modules(["mine.variant"])
    assert digest_of_modules(["mine.variant"]) == before
    with (package / edited).open("a") as file:
        file.write("# changed\n")
    assert (digest_of_modules(["mine.variant"]) != before) == (edited != "stranger.py")


def test_an_installed_plugin_counts_as_far_as_it_is_its_own(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = package / "site-packages"
    write(installed)
    monkeypatch.syspath_prepend(installed)
    assert found_in(installed) == {name for name in FILES if name.startswith("mine/")}


def test_modules_without_source_are_no_mistake() -> None:
    assert digest_of_modules(["no.such.module"]) == digest_of_modules([]) == digest_of_modules(["math"])


def test_the_rooms_that_count_are_there() -> None:
    assert all((Path(zoo.__file__).parent / name / "__init__.py").is_file() for name in OWN)


def test_an_edit_of_the_zoo_counts_where_it_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("models", "cli", "registry"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        (tmp_path / "zoo" / name / "__init__.py").write_text("part = 1\n")
    monkeypatch.setattr(zoo, "__file__", str(tmp_path / "zoo/__init__.py"))
    monkeypatch.setattr(zoo.registry, "__file__", str(tmp_path / "zoo/registry/__init__.py"))
    digests = [digest_of_the_zoo.__wrapped__()]
    for name in ("cli", "models", "registry"):
        (tmp_path / "zoo" / name / "__init__.py").write_text("part = 2\n")
        digests.append(digest_of_the_zoo.__wrapped__())
    assert digests[0] == digests[1] and len(set(digests)) == 3


def test_weights_that_training_starts_from_count_and_are_counted_on(tmp_path: Path) -> None:
    """Their sizes set the budget and the costs, and other weights in the same folder are another run."""
    (tmp_path / "text.txt").write_text("to be or not to be\n" * 50)
    names, task = ["gpt2-style", "gpt2-style:dropout=0.3"], find_task("language-modeling:block_size=8")
    tokenizers = task.train_tokenizers(task.load(tmp_path / "text.txt").train, kind="character")
    start = tmp_path / "start"
    model = zoo.build("gpt2-style@tiny", **task.model_settings(tokenizers))
    model.save_pretrained(start)
    tokenizers.save(tmp_path / "tokenizer")
    given = {"data": tmp_path / "text.txt", "tokenizer": tmp_path / "tokenizer", "output_dir": tmp_path / "compared"}
    request = Request(names, recipe=Recipe("language-modeling", {"block_size": 8}, init=str(start)), **given)
    request, plan, inputs = set_up(request, progress=False, tell=lambda sentence: None)
    for name in names:
        assert inputs.count_parameters(name) == model.num_parameters()
        assert inputs.count_flops(name) == flops_per_token(model, inputs.work.source_len)
    assert inputs.data_settings(names[0])["hidden_size"] == model.config.hidden_size
    first = JobMaker(inputs, request, plan.baseline, False, print).job(names[0], 0, {}).hash
    for mode, is_same in (({"unpadding": "never"}, True), ({"quick_dropout": "never"}, False)):
        with fast_paths(**mode):
            other = JobMaker(inputs, request, plan.baseline, False, print).job(names[0], 0, {})
        assert (other.hash == first, other.fast_paths) == (is_same, mode), "dropout draws other numbers"
    zoo.build("gpt2-style@tiny", seed=1, **task.model_settings(tokenizers)).save_pretrained(start)
    _, _, again = set_up(request, progress=False, tell=lambda sentence: None)
    assert JobMaker(again, request, plan.baseline, False, print).job(names[0], 0, {}).hash != first
