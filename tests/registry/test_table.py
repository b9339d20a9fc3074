"""Registries: look-up, collisions, deprecation, origins, and what happens when everybody comes at once."""

import importlib
import sys
import threading
import warnings
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from zoo.base.errors import DeprecatedNameWarning, NameCollisionError, RegistrationError, UnknownNameError, ZooError
from zoo.registry import Origin, Registry

Positions = Registry[object]
WriteModule = Callable[[str, str], None]


@pytest.fixture
def positions() -> Registry[object]:
    return Registry("position")


def test_register_directly_returns_the_value(positions: Positions) -> None:
    rotary = object()
    assert positions.register("rotary", rotary) is rotary
    assert positions.get("rotary") is rotary


def test_register_as_decorator_returns_the_class(positions: Positions) -> None:
    @positions.register("rotary", aliases=("rope",))
    class Rotary: ...

    assert positions.get("rotary") is positions.get("rope") is Rotary
    assert positions.canonical("rope") == "rotary"


def test_listing_is_sorted_and_leaves_out_aliases_and_deprecated_names(positions: Positions) -> None:
    positions.register("rotary", 1, aliases=("rope",))
    positions.register("alibi", 2)
    positions.register("shaw", 3, deprecated="use 't5'")
    assert positions.names() == list(positions) == ["alibi", "rotary"]
    assert len(positions) == 2
    assert all(name in positions for name in ("rotary", "rope", "shaw"))
    assert "rotari" not in positions
    assert 1 not in positions


def test_an_unknown_name_is_refused_with_valid_ones_and_the_nearest(positions: Positions) -> None:
    positions.register("rotary", 1)
    positions.register("alibi", 2)
    with pytest.raises(UnknownNameError) as caught:
        positions.get("rottary")
    assert str(caught.value) == "unknown position 'rottary'; valid: alibi, rotary; did you mean 'rotary'?"
    assert caught.value.nearest == "rotary"
    assert isinstance(caught.value, ZooError)
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize("ask", [Registry.get, Registry.canonical, Registry.origin])
def test_every_look_up_refuses_unknown_names(positions: Positions, ask: Callable[..., object]) -> None:
    with pytest.raises(UnknownNameError, match="unknown position 'x'; valid: none"):
        ask(positions, "x")


@pytest.mark.parametrize("name", ["", "a b", "-a", "a+b", "a@b", "a:b", "a=b", "a,b", "ä"])
def test_names_that_could_not_be_written_with_settings_are_refused(positions: Positions, name: str) -> None:
    with pytest.raises(RegistrationError, match="position name"):
        positions.register(name, 1)
    with pytest.raises(RegistrationError, match="position name"):
        positions.register("good", 1, aliases=(name,))
    assert "good" not in positions


class TestCollisions:
    def test_both_sides_are_named(self, positions: Positions) -> None:
        positions.register("rotary", 1, module="zoo.models.rotary")
        with pytest.raises(NameCollisionError) as caught:
            positions.register("rotary", 2, module="nowhere.rope")
        message = str(caught.value)
        assert "position 'rotary' of nowhere.rope (no distribution)" in message
        assert "from zoo.models.rotary (transformer-zoo" in message
        assert "override=True" in message
        assert positions.get("rotary") == 1

    def test_an_alias_collides_too_and_then_nothing_is_registered(self, positions: Positions) -> None:
        positions.register("rotary", 1, aliases=("rope",))
        with pytest.raises(NameCollisionError, match="'rope'"):
            positions.register("mine", 2, aliases=("rope",))
        with pytest.raises(NameCollisionError, match="'rope'"):
            positions.register("rope", 2)
        assert "mine" not in positions

    def test_override_takes_the_name_and_its_aliases(self, positions: Positions) -> None:
        positions.register("rotary", 1, aliases=("rope",), module="zoo.models.rotary")
        positions.register("rotary", 2, override=True)
        assert positions.get("rotary") == positions.get("rope") == 2
        assert positions.origin("rope").module == __name__

    def test_the_same_object_may_register_again(self, positions: Positions) -> None:
        value = object()
        positions.register("rotary", value, aliases=("rope",))
        positions.register("rotary", value, aliases=("rope",))
        assert positions.get("rope") is value

    def test_a_reloaded_module_may_register_again(
        self, positions: Positions, write_module: WriteModule, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        shared = "shared_for_reload"
        monkeypatch.setitem(sys.modules, shared, type(sys)(shared))
        sys.modules[shared].positions = positions  # type: ignore[attr-defined]
        write_module(
            "reloaded",
            """
            from shared_for_reload import positions

            @positions.register("rotary", aliases=("rope",))
            class Rotary: ...
            """,
        )
        module = importlib.import_module("reloaded")
        first = positions.get("rotary")
        importlib.reload(module)
        assert positions.get("rope") is module.Rotary
        assert positions.get("rope") is not first

    def test_two_definitions_of_one_module_collide(self, positions: Positions) -> None:
        @positions.register("rotary")
        class First: ...

        with pytest.raises(NameCollisionError):

            @positions.register("rotary")
            class Second: ...

        assert positions.get("rotary") is First


class TestAliasesAndDeprecation:
    def test_a_deprecated_name_works_and_warns_at_the_callers_line(self, positions: Positions) -> None:
        positions.register("shaw", 3, deprecated="use 't5'")
        with pytest.warns(DeprecatedNameWarning, match="position 'shaw' is deprecated: use 't5'") as caught:
            assert positions.get("shaw") == 3
        assert caught[0].filename == __file__
        assert issubclass(DeprecatedNameWarning, FutureWarning), "users must see it, not only developers"

    def test_a_renamed_thing_keeps_its_old_name_for_a_while(self, positions: Positions) -> None:
        positions.register("rotary", 1, aliases=("rope",))
        positions.alias("rotary-embedding", "rope", deprecated="renamed to 'rotary'")
        with pytest.warns(DeprecatedNameWarning, match="renamed to 'rotary'"):
            assert positions.get("rotary-embedding") == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert positions.get("rotary") == 1
        assert positions.canonical("rotary-embedding") == "rotary"

    def test_an_alias_needs_a_target_and_a_free_name(self, positions: Positions) -> None:
        positions.register("rotary", 1)
        positions.register("alibi", 2)
        with pytest.raises(UnknownNameError, match="did you mean 'rotary'"):
            positions.alias("rope", "rotari")
        with pytest.raises(NameCollisionError):
            positions.alias("alibi", "rotary")
        with pytest.raises(RegistrationError, match="alias of itself"):
            positions.alias("rotary", "rotary", override=True)
        with pytest.raises(RegistrationError, match="alias of itself"):
            positions.register("t5", 3, aliases=("t5",))

    def test_an_alias_of_a_name_that_became_an_alias_still_resolves(self, positions: Positions) -> None:
        positions.register("rotary", 1, aliases=("rope",))
        positions.register("rotary-2", 2)
        positions.alias("rotary", "rotary-2", override=True)
        assert positions.get("rope") == 2
        assert positions.canonical("rope") == "rotary-2"


class TestOrigins:
    def test_the_module_that_registers_counts_not_the_one_that_defines(self, positions: Positions) -> None:
        positions.register("threads", threading.Thread)
        assert positions.origin("threads") == Origin(__name__)

    def test_the_zoo_itself(self, positions: Positions) -> None:
        positions.register("rotary", 1, module="zoo.models.rotary")
        origin = positions.origin("rotary")
        assert (origin.built_in, origin.distribution) == (True, "transformer-zoo")
        assert not Origin("zoology").built_in

    def test_a_script_has_no_distribution(self) -> None:
        origin = Origin("__main__")
        assert (origin.built_in, origin.distribution, origin.version) == (False, None, None)
        assert str(origin) == "__main__ (no distribution)"

    def test_an_installed_module(self, install: Callable[..., None]) -> None:
        install("my-rope", "", plugin="")
        origin = Origin("my_rope.deep.inside")
        assert (origin.distribution, origin.version) == ("my-rope", "1.2")
        assert str(origin) == "my_rope.deep.inside (my-rope 1.2)"


BUILT_IN = """
import time
from shared_table import table
{wait}
table.register("rotary", "built-in", module="zoo.models.rotary")
"""


class TestBuiltIns:
    @pytest.fixture
    def table(self, write_module: WriteModule, monkeypatch: pytest.MonkeyPatch) -> Registry[str]:
        """A registry with a slow built-in module."""
        table: Registry[str] = Registry("position", built_in="slow_built_ins")
        monkeypatch.setitem(sys.modules, "shared_table", type(sys)("shared_table"))
        sys.modules["shared_table"].table = table  # type: ignore[attr-defined]
        write_module("slow_built_ins", BUILT_IN.format(wait="time.sleep(0.3)"))
        return table

    def test_they_are_loaded_on_the_first_look_up(self, table: Registry[str]) -> None:
        assert "slow_built_ins" not in sys.modules
        assert table.get("rotary") == "built-in"

    def test_they_are_there_before_anybody_else_registers(self, table: Registry[str]) -> None:
        with pytest.raises(NameCollisionError, match=r"from zoo\.models\.rotary"):
            table.register("rotary", "mine")
        table.register("rotary", "mine", override=True)
        assert table.get("rotary") == "mine"

    def test_many_threads_all_find_them(self, table: Registry[str]) -> None:
        start = threading.Barrier(16)

        def look_up(_: int) -> str:
            start.wait()
            return table.get("rotary")

        with ThreadPoolExecutor(16) as pool:
            assert list(pool.map(look_up, range(16), timeout=30)) == ["built-in"] * 16

    def test_importing_them_while_others_register_does_not_deadlock(self, table: Registry[str]) -> None:
        start = threading.Barrier(9)

        def import_them() -> None:
            start.wait()
            importlib.import_module("slow_built_ins")

        def register(index: int) -> None:
            start.wait()
            table.register(f"mine-{index}", "mine")

        with ThreadPoolExecutor(9) as pool:
            for future in [pool.submit(import_them), *(pool.submit(register, index) for index in range(8))]:
                future.result(timeout=30)
        assert table.names() == sorted(["rotary", *(f"mine-{index}" for index in range(8))])


def test_of_many_threads_exactly_one_gets_the_name(positions: Positions) -> None:
    start = threading.Barrier(16)

    def register(index: int) -> bool:
        start.wait()
        try:
            positions.register("rotary", index, module=f"module_{index}")
        except NameCollisionError:
            return False
        return True

    with ThreadPoolExecutor(16) as pool:
        assert sum(pool.map(register, range(16), timeout=30)) == 1


class TestLazyEntries:
    def test_listing_imports_nothing(self, positions: Positions) -> None:
        positions.register_lazily("late", "no_such_module:Late", aliases=("tardy",))
        assert positions.names() == ["late"] and "tardy" in positions

    def test_the_object_is_imported_when_it_is_looked_up(self, positions: Positions) -> None:
        positions.register_lazily("late", "collections:OrderedDict")
        assert positions.get("late") is OrderedDict

    @pytest.mark.parametrize("path", ["no_such_module:Late", "collections:Late", "collections", ""])
    def test_an_object_that_is_not_there_is_named(self, positions: Positions, path: str) -> None:
        positions.register_lazily("late", path)
        with pytest.raises(RegistrationError, match=f"'{path}' was registered, but cannot be imported"):
            positions.get("late")

    def test_it_may_register_again_but_not_take_a_name(self, positions: Positions) -> None:
        positions.register_lazily("late", "collections:OrderedDict")
        positions.register_lazily("late", "collections:OrderedDict")
        with pytest.raises(NameCollisionError):
            positions.register_lazily("late", "collections:deque")
        with pytest.raises(NameCollisionError):
            positions.register("late", object)

    def test_summaries_are_first_lines_of_docstrings(
        self, positions: Positions, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "of_the_source"
        package.mkdir()
        (package / "__init__.py").write_text("raise ImportError('imported')")
        (package / "late.py").write_text('class Late:\n    """Comes late.\n\n    Or never.\n    """\n')
        monkeypatch.syspath_prepend(tmp_path)
        positions.register_lazily("late", "of_the_source.late:Late")
        positions.register_lazily("loaded", "collections:OrderedDict")
        positions.register("early", OrderedDict)
        assert positions.summary("late") == "Comes late."
        assert positions.summary("loaded") == positions.summary("early") == "Dictionary that remembers insertion order"
