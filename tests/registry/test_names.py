"""The grammar of names that carry settings."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.base.errors import NameSyntaxError
from zoo.registry import VariantSpec, parse_name, parse_value
from zoo.registry.names import Task

LETTERS_AND_DIGITS = string.ascii_letters + string.digits
words = st.builds(str.__add__, st.sampled_from(LETTERS_AND_DIGITS), st.text(LETTERS_AND_DIGITS + ".-_", max_size=12))
quirk_words = words.filter(lambda word: word != "faithful")
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,12}", fullmatch=True)
atoms = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=12)
)
values = st.recursive(
    atoms,
    lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner) | st.dictionaries(atoms, inner, max_size=3),
    max_leaves=8,
)
specs = st.builds(
    VariantSpec,
    name=words,
    preset=st.none() | words,
    quirks=st.lists(quirk_words, unique=True, max_size=3).map(tuple),
    faithful=st.booleans(),
    overrides=st.dictionaries(keys, values, max_size=4),
)


@given(specs)
def test_what_is_written_is_read_back(spec: VariantSpec) -> None:
    assert parse_name(str(spec)) == spec


@given(specs)
def test_equal_specs_have_equal_hashes(spec: VariantSpec) -> None:
    assert hash(parse_name(str(spec))) == hash(spec)


@given(values)
def test_values_keep_their_types(value: object) -> None:
    read = parse_name(str(VariantSpec("x", overrides={"key": value}))).overrides["key"]
    assert repr(read) == repr(value)


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused_in_one_line(text: str) -> None:
    try:
        spec = parse_name(text)
    except NameSyntaxError as error:
        assert "\n" not in str(error)
    else:
        assert parse_name(str(spec)) == spec


@given(st.text(alphabet="ab:=,+@'\"[](){}\\ 1.-", max_size=25))
def test_punctuation_is_read_or_refused(settings: str) -> None:
    try:
        spec = parse_name(f"name:key={settings}")
    except NameSyntaxError:
        return
    assert parse_name(str(spec)) == spec


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vanilla", VariantSpec("vanilla")),
        ("  vanilla ", VariantSpec("vanilla")),
        ("vanilla+faithful", VariantSpec("vanilla", faithful=True)),
        ("vanilla+a-quirk+another", VariantSpec("vanilla", quirks=("a-quirk", "another"))),
        ("vanilla+a-quirk+faithful", VariantSpec("vanilla", quirks=("a-quirk",), faithful=True)),
        ("d2l-style@small", VariantSpec("d2l-style", preset="small")),
        (
            "pre-norm:position=rotary,hidden_size=512",
            VariantSpec("pre-norm", overrides={"position": "rotary", "hidden_size": 512}),
        ),
        (
            "pre-norm@tiny+q:layer_types=['a','b'], dropout = 0.1",
            VariantSpec("pre-norm", "tiny", ("q",), overrides={"layer_types": ["a", "b"], "dropout": 0.1}),
        ),
    ],
)
def test_examples_are_read(text: str, expected: VariantSpec) -> None:
    assert parse_name(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("512", 512),
        ("-1e-5", -1e-5),
        ("1_000", 1000),
        ("None", None),
        ("none", "none"),
        ("true", True),
        ("False", False),
        ("pre-norm", "pre-norm"),
        ("t5", "t5"),
        ("8k", "8k"),
        ("'8'", "8"),
        ("[1, 2]", [1, 2]),
        ("(1,)", (1,)),
        ("{'rope_theta': 500.0}", {"rope_theta": 500.0}),
        ("{1, 2}", "{1, 2}"),
        ("1e999", "1e999"),
        ("/data/a.txt", "/data/a.txt"),
    ],
)
def test_values_are_python_literals_or_text(text: str, expected: object) -> None:
    value = parse_value(text)
    assert value == expected
    assert type(value) is type(expected)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "NAME[@PRESET]"),
        ("pre norm", "NAME[@PRESET]"),
        ("vanilla@", "NAME[@PRESET]"),
        ("vanilla+", "NAME[@PRESET]"),
        ("vanilla+q@tiny", "NAME[@PRESET]"),
        ("vanilla+q+q", "quirk 'q' was given twice"),
        ("vanilla:", "cannot read the setting ''"),
        ("vanilla:dropout", "cannot read the setting 'dropout'"),
        ("vanilla:dropout=", "cannot read the setting 'dropout='"),
        ("vanilla:drop out=1", "cannot read the setting 'drop out=1'"),
        ("vanilla:a=1,a=2", "setting 'a' was given twice"),
        ("vanilla:a=[1,2", "']' is missing"),
        ("vanilla:a='x", '"\'" is missing'),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(text: str, complaint: str) -> None:
    with pytest.raises(NameSyntaxError) as caught:
        parse_name(text)
    assert complaint in str(caught.value)


def test_an_object_is_no_name() -> None:
    with pytest.raises(NameSyntaxError, match="cannot read the name <class 'list'>; valid: NAME"):
        parse_name(["a module's representation has many lines"])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments",
    [
        {"name": "a b"},
        {"name": "a", "preset": ""},
        {"name": "a", "quirks": ("faithful",)},
        {"name": "a", "quirks": ("q", "q")},
        {"name": "a", "overrides": {"a b": 1}},
        {"name": "a", "overrides": {"a": float("nan")}},
        {"name": "a", "overrides": {"a": [object()]}},
    ],
)
def test_a_spec_that_could_not_be_written_cannot_be_made(arguments: dict[str, object]) -> None:
    with pytest.raises(NameSyntaxError):
        VariantSpec(**arguments)  # type: ignore[arg-type]


def test_a_string_enum_is_written_as_its_value() -> None:
    assert str(VariantSpec("a", overrides={"task": Task.CAUSAL_LM})) == "a:task=causal-lm"
