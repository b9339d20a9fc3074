"""What is recorded is read back as it was, and a file is never half a row."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zoo.base.errors import CheckpointError
from zoo.comparison.benchmarks import Row, read_rows, record
from zoo.comparison.benchmarks.rows import write_rows

TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\0"), max_size=20)
ROWS = st.lists(
    st.builds(
        Row,
        version=st.integers(1, 3),
        condition=TEXT,
        variant=TEXT,
        seed=st.integers(0, 5),
        settings=st.dictionaries(TEXT, st.integers() | TEXT | st.floats(allow_nan=False), max_size=2),
        values=st.dictionaries(
            st.sampled_from(["bleu", "heldout_loss", "a@2x"]), st.floats(allow_nan=False), max_size=3
        ),
        error=TEXT,
        load=st.floats(0, 100),
        threads=st.integers(0, 64),
    ),
    unique_by=lambda row: row.key,
    max_size=6,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=ROWS)
def test_rows_come_back(tmp_path: Path, rows: list[Row]) -> None:
    write_rows(tmp_path / "rows.csv", rows)
    assert sorted(read_rows(tmp_path / "rows.csv"), key=lambda row: row.key) == sorted(rows, key=lambda row: row.key)


def test_recording_replaces_and_keeps(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    record(file, [Row(1, "", "a", 0, values={"bleu": 1.0}), Row(1, "", "a", 1, values={"bleu": 2.0})])
    before = file.read_text()
    record(file, [Row(1, "", "a", 1, values={"bleu": 3.0})])
    assert [row.values["bleu"] for row in read_rows(file)] == [1.0, 3.0]
    record(file, [Row(1, "", "a", 1, values={"bleu": 2.0})])
    assert file.read_text() == before


def test_those_who_record_at_once_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    made = [Row(1, "", variant, seed) for variant in "abc" for seed in range(10)]
    with ThreadPoolExecutor(3) as writers:
        list(writers.map(lambda row: record(file, [row]), made))
    assert sorted(read_rows(file), key=lambda row: row.key) == made


def test_an_order_of_writing_does_not_show(tmp_path: Path) -> None:
    rows = [Row(1, c, v, s) for c in "xy" for v in "ab" for s in (0, 1)]
    write_rows(tmp_path / "one.csv", rows)
    write_rows(tmp_path / "other.csv", rows[::-1])
    assert (tmp_path / "one.csv").read_bytes() == (tmp_path / "other.csv").read_bytes()


def test_an_interrupted_recording_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.csv"
    record(file, [Row(1, "", "a", 0)])
    before = file.read_bytes()
    monkeypatch.setattr("os.replace", lambda *names: (_ for _ in ()).throw(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        record(file, [Row(1, "", "b", 0)])
    assert file.read_bytes() == before and {one.name for one in tmp_path.iterdir()} == {".lock", "rows.csv"}


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "version,condition\n1\n"])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rows.csv").write_text(text)
    with pytest.raises(CheckpointError, match="no results of a benchmark"):
        read_rows(tmp_path / "rows.csv")
