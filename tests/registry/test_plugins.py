"""Plugins: when they are loaded, what they may register, and what happens when they fail."""

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from preloaded import run_python

import zoo.registry.table
from zoo.base.errors import MissingPluginError, NameCollisionError, PluginWarning
from zoo.registry import Registry
from zoo.registry.plugins import PluginLoader, installed

Install = Callable[..., None]
Positions = Registry[object]


@pytest.fixture
def positions(monkeypatch: pytest.MonkeyPatch) -> Registry[object]:
    """A registry that a plugin's code can import."""
    registry: Registry[object] = Registry("position")
    registry.register("rotary", "built-in", module="zoo.models.rotary")
    monkeypatch.setitem(sys.modules, "shared_parts", type(sys)("shared_parts"))
    sys.modules["shared_parts"].POSITIONS = registry  # type: ignore[attr-defined]
    return registry


GOOD = """
from shared_parts import POSITIONS
POSITIONS.register("wave", "a wave")
"""


@pytest.mark.parametrize(
    "use",
    [
        lambda positions: positions.get("wave"),
        lambda positions: positions.names(),
        lambda positions: "wave" in positions,
        lambda positions: positions.origin("wave"),
    ],
    ids=["get", "list", "contains", "origin"],
)
def test_plugins_are_loaded_when_a_name_is_unknown_or_everything_is_listed(
    positions: Positions, install: Install, use: Callable[[Positions], object]
) -> None:
    install("zoo-wave", GOOD)
    assert positions.get("rotary") == "built-in"
    assert "zoo_wave" not in sys.modules, "a known name needs no plugin"
    use(positions)
    assert positions.get("wave") == "a wave"


def test_a_plugin_may_be_a_function(positions: Positions, install: Install) -> None:
    install(
        "zoo-wave",
        """
        def setup():
            from shared_parts import POSITIONS
            POSITIONS.register("wave", "a wave")
        """,
        value="zoo_wave:setup",
    )
    assert positions.get("wave") == "a wave"


def test_plugins_are_loaded_once(positions: Positions, install: Install) -> None:
    install(
        "zoo-counting",
        """
        import shared_parts
        def setup():
            shared_parts.calls = getattr(shared_parts, "calls", 0) + 1
        """,
        value="zoo_counting:setup",
    )
    start = threading.Barrier(8)

    def ask(_: int) -> bool:
        start.wait()
        return "nothing" in positions

    with ThreadPoolExecutor(8) as pool:
        assert not any(pool.map(ask, range(8), timeout=30))
    assert sys.modules["shared_parts"].calls == 1


def test_other_threads_wait_until_plugins_are_loaded(positions: Positions, install: Install) -> None:
    install("zoo-wave", "import time; time.sleep(0.3)" + GOOD)
    start = threading.Barrier(8)

    def ask(_: int) -> object:
        start.wait()
        return positions.get("wave")

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(8), timeout=30)) == ["a wave"] * 8


def test_a_plugin_may_look_things_up_while_it_is_loaded(positions: Positions, install: Install) -> None:
    install(
        "zoo-curious",
        """
        from shared_parts import POSITIONS
        if "wave" not in POSITIONS:
            POSITIONS.register("wave", len(POSITIONS.names()))
        """,
    )
    assert positions.get("wave") == 1


def test_a_plugin_may_wait_for_a_thread_that_lists_everything(
    positions: Positions, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo.registry.table, "PLUGINS", PluginLoader(timeout=0.1))
    install(
        "zoo-joining",
        """
        import threading
        from shared_parts import POSITIONS
        thread = threading.Thread(target=lambda: POSITIONS.register("found", POSITIONS.names()))
        thread.start()
        thread.join()
        """,
    )
    with pytest.warns(PluginWarning, match="another thread has been loading plugins for more than 0.1 s"):
        assert positions.get("found") == ["rotary"]


class TestBrokenPlugins:
    @pytest.mark.parametrize(
        "failure",
        [
            "raise SystemExit('no')",
            "raise KeyboardInterrupt('no')",
            "raise BaseException('no')",
            "1 / 0",
            "def setup(: ...",
        ],
    )
    def test_every_way_to_fail_is_survived(self, positions: Positions, install: Install, failure: str) -> None:
        install("zoo-broken", failure)
        with pytest.warns(
            PluginWarning, match=r"'zoo-broken' of zoo-broken 1.2( \(.*broken.py, line \d\))? is left out: "
        ):
            assert positions.names() == ["rotary"]

    @pytest.mark.parametrize("value", ["zoo_broken:missing", "zoo_broken:number"])
    def test_a_value_that_is_no_function_is_reported(self, positions: Positions, install: Install, value: str) -> None:
        install("zoo-broken", "number = 3", value=value)
        with pytest.warns(PluginWarning, match="is left out: (Attribute|Type)Error"):
            positions.names()

    def test_what_it_registered_before_it_failed_is_taken_back(self, positions: Positions, install: Install) -> None:
        install(
            "zoo-broken",
            """
            from shared_parts import POSITIONS
            POSITIONS.register("half", 1, aliases=("demi",))
            POSITIONS.register("rotary", 2, override=True)
            POSITIONS.alias("rope", "rotary")
            raise RuntimeError("too late")
            """,
        )
        with pytest.warns(PluginWarning, match="too late"):
            assert positions.names() == ["rotary"]
        assert positions.get("rotary") == "built-in"
        assert "demi" not in positions
        assert "rope" not in positions

    def test_two_plugins_with_one_name(self, positions: Positions, install: Install) -> None:
        install("zoo-a", GOOD)
        install("zoo-b", GOOD)
        with pytest.warns(PluginWarning, match=r"zoo_b \(zoo-b 1\.2\) exists already, from zoo_a \(zoo-a 1\.2\)"):
            positions.names()
        assert positions.origin("wave").distribution == "zoo-a"

    def test_overriding_must_be_said(self, positions: Positions, install: Install) -> None:
        install("zoo-override", GOOD.replace('"a wave"', '"mine", override=True').replace('"wave"', '"rotary"'))
        positions.names()
        assert positions.get("rotary") == "mine"
        assert positions.origin("rotary").distribution == "zoo-override"

    def test_a_model_with_a_replaced_part_needs_the_plugin(
        self, positions: Positions, install: Install, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        code = GOOD.replace('"a wave"', '"mine", override=True').replace('"wave"', '"rotary"')
        monkeypatch.setenv("ZOO_PLUGINS", "")
        with pytest.raises(MissingPluginError, match="'rotary' comes from the plugin 'zoo-override'"):
            positions.get("rotary", provider="zoo-override")
        monkeypatch.delenv("ZOO_PLUGINS")
        monkeypatch.setattr(zoo.registry.table, "PLUGINS", PluginLoader())
        install("zoo-override", code)
        assert positions.get("rotary", provider="zoo-override") == "mine"


class TestSwitch:
    @pytest.fixture(autouse=True)
    def _two_plugins(self, install: Install) -> None:
        install("zoo-wave", GOOD, plugin="wave")
        install("zoo-pulse", GOOD.replace("wave", "pulse"), plugin="pulse")

    @pytest.mark.parametrize(
        ("switch", "expected"),
        [
            (None, ["pulse", "rotary", "wave"]),
            ("wave", ["rotary", "wave"]),
            (" wave , pulse,", ["pulse", "rotary", "wave"]),
            ("", ["rotary"]),
        ],
    )
    def test_it_limits_plugins(
        self, positions: Positions, monkeypatch: pytest.MonkeyPatch, switch: str | None, expected: list[str]
    ) -> None:
        if switch is not None:
            monkeypatch.setenv("ZOO_PLUGINS", switch)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert positions.names() == expected

    def test_a_plugin_that_is_not_installed_is_named(
        self, positions: Positions, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("ZOO_PLUGINS", "wave,puls")
        with pytest.warns(PluginWarning, match="'puls', which is not installed; .*did you mean 'pulse'"):
            assert positions.names() == ["rotary", "wave"]


def test_importing_a_plugins_module_oneself_is_like_loading_it(positions: Positions, install: Install) -> None:
    install("zoo-wave", GOOD)
    import zoo_wave  # type: ignore[import-not-found]  # noqa: F401

    assert positions.get("wave") == "a wave"
    assert positions.origin("wave").distribution == "zoo-wave"
    assert positions.names() == ["rotary", "wave"]


def test_importing_a_colliding_module_oneself_raises(positions: Positions, install: Install) -> None:
    install("zoo-colliding", GOOD.replace("wave", "rotary"))
    with pytest.raises(NameCollisionError, match=r"zoo_colliding \(zoo-colliding 1\.2\) exists already"):
        import zoo_colliding  # type: ignore[import-not-found]  # noqa: F401


def test_plugins_are_loaded_in_a_fixed_order(install: Install) -> None:
    for name in ("zoo-c", "zoo-a", "zoo-b"):
        install(name, "")
    assert [plugin.name for plugin in installed() if plugin.name in {"zoo-a", "zoo-b", "zoo-c"}] == [
        "zoo-a",
        "zoo-b",
        "zoo-c",
    ]


CTRL_C = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"


def run_interrupted(site: Path, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own: a real signal would end the one that runs the tests, too."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *filter(None, sys.path)])}
    environment.pop("ZOO_PLUGINS", None)
    return run_python(["-c", program], env=environment)


@pytest.mark.parametrize(
    "code",
    [
        CTRL_C,
        f"class Careless:\n    def __del__(self):\n        {CTRL_C}\nCareless()",
        f"try:\n    {CTRL_C}\nexcept KeyboardInterrupt:\n    raise ImportError('no time')",
    ],
    ids=["raised", "swallowed", "renamed"],
)
def test_ctrl_c_while_a_plugin_is_imported_ends_the_command(install: Install, site: Path, code: str) -> None:
    install("zoo-wave", code)
    run = run_interrupted(site, "from zoo.registry import VARIANTS; VARIANTS.names(); print('went on')")
    assert run.returncode != 0 and "went on" not in run.stdout
    assert run.stderr.rstrip().rpartition("\n")[2] == "KeyboardInterrupt"


def test_a_plugin_may_handle_ctrl_c_by_itself(install: Install, site: Path) -> None:
    install("zoo-wave", "import signal; signal.signal(signal.SIGINT, lambda *_: print('handled'))")
    run = run_interrupted(site, f"from zoo.registry import VARIANTS; VARIANTS.names(); {CTRL_C}")
    assert run.stdout == "handled\n", run.stderr


def test_after_ctrl_c_plugins_are_loaded_by_the_next_look_up(install: Install, site: Path) -> None:
    once = "import sys; interrupted = hasattr(sys, 'interrupted'); sys.interrupted = True\nif not interrupted:"
    install("zoo-wave", f"{once} {CTRL_C}\nfrom zoo.models import NORMS\nNORMS.register('wave', 'a wave')")
    listed = "try:\n    NORMS.names()\nexcept KeyboardInterrupt:\n    print(NORMS.get('wave'))"
    run = run_interrupted(site, f"from zoo.models import NORMS\n{listed}")
    assert run.stdout == "a wave\n", run.stderr


def test_what_a_plugin_prints_is_not_on_stdout(
    positions: Positions, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install("zoo-wave", f"print('hello'){GOOD}")
    assert "wave" in positions.names()
    assert capsys.readouterr() == ("", "hello\n")


def test_a_loader_without_plugins_does_nothing() -> None:
    loader = PluginLoader()
    loader.load()
    loader.load()
