"""One thread a test process, as models are tiny and tests run in parallel; no progress bars; no clock that fails.

    pytest --device cuda tests/models/test_every_variant.py

runs the suite of every variant on a GPU.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch
import transformers.utils.logging
from hypothesis import HealthCheck, settings
from preloaded import run_isolated

from zoo.registry import VARIANTS

# With the corpora of a user, commands of the documents would train instead of asking for them.
os.environ.pop("ZOO_DATA", None)
torch.set_num_threads(1)
# Most of what there is, modules and tests, stays: looking for garbage seldom, and not there, saves a tenth of the time.
gc.set_threshold(20_000, 20, 20)
transformers.utils.logging.disable_progress_bar()
# Where a commit is judged, the same examples every time; everywhere else new ones.
IN_CI = "CI" in os.environ
settings.register_profile("zoo", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=IN_CI)
settings.load_profile("zoo")

LONGEST = ("browser-page", "engines", "site")  # Groups of tests that take a minute or more

SLOW_TO_SET_UP = {"compared", "plans", "recorded"}  # Fixtures that take seconds. What needs them is slow.


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the suite of every variant runs: cpu, cuda, cuda:1, ...")


def pytest_configure(config: pytest.Config) -> None:
    check_device(config.getoption("--device"))


@pytest.hookimpl(tryfirst=True)  # before xdist reads groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest groups and modules with slow tests first, and let the tests of a module share what they set up.

    So processes come to the end together. At night there are too many tests of one module for one process.
    """
    for item in items:
        if SLOW_TO_SET_UP & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.slow)
    slow = {item.path for item in items if item.get_closest_marker("slow")}

    def place(item: pytest.Item) -> int:
        group = item.get_closest_marker("xdist_group")
        is_long = group is not None and group.args[0] in LONGEST
        return LONGEST.index(group.args[0]) if is_long else len(LONGEST) + (item.path not in slow)

    items.sort(key=place)
    for item in items:
        if not any(map(item.get_closest_marker, ("xdist_group", "nightly"))):
            item.add_marker(pytest.mark.xdist_group(f"{item.path.parent.name}/{item.path.stem}"))


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Leave alone what is left: pytest looks for garbage among it five times, and a process would not end in time."""
    gc.freeze()


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a case of a long text by its beginning: every process gets every name, and some texts have megabytes."""
    return ascii(val[:80])[1:-1] if isinstance(val, str) and len(val) > 160 else None


def check_device(name: str) -> torch.device:
    """Refuse a device that is not there, before any test is run on another."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise pytest.UsageError(f"--device {name} cannot be used here: {reason}") from error
    return device


@pytest.fixture(scope="module", autouse=True)
def what_a_module_imports_stays() -> Iterator[None]:
    """Keep what is left out of later searches for garbage; accelerate makes one in every training."""
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def variants_leave_with_their_module() -> Iterator[None]:
    """What a test registers is not there for the tests of another file, which list or draw every variant."""
    yield
    left = [name for name, entry in VARIANTS._items.items() if not entry.origin.built_in]
    for name in left:
        del VARIANTS._items[name]
    assert not left, f"still registered: {', '.join(left)}"


@pytest.fixture
def in_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exports are verified, and ejected files proved, in forks, which start three seconds sooner than processes."""
    from zoo.analysis.eject import proof
    from zoo.converters import verification

    for module in (proof, verification):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(run=run_isolated))


@pytest.fixture
def on_device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The default device of new tensors: that of `--device`."""
    device = check_device(request.config.getoption("--device"))
    # A default device is a mode, in which every function of PyTorch first calls one of Python's.
    with nullcontext() if device.type == "cpu" else device:
        yield device
