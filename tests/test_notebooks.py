"""The notebooks of the documentation run from top to bottom, and what they claim holds: they assert it themselves."""

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
EVERY_TIME = {"five-originals"}
RUN = [pytest.param(file, marks=() if file.stem in EVERY_TIME else pytest.mark.nightly) for file in NOTEBOOKS]

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("notebooks")]


@pytest.fixture(scope="module")
def kernel() -> Iterator[KernelManager]:
    """One process for all: what they import takes longer than most of what they do."""
    with tempfile.TemporaryDirectory() as folder:  # for its sockets: their names may not be long
        manager = KernelManager(kernel_name="python3", transport="ipc", ip=f"{folder}/kernel")
        manager.start_kernel()
        yield manager
        manager.shutdown_kernel(now=True)


def test_the_site_leads_to_all_of_them() -> None:
    listed = re.findall(r"- notebooks/([\w-]+)\.ipynb", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == [file.stem for file in NOTEBOOKS]


@pytest.mark.parametrize("file", RUN, ids=lambda file: file.stem)
def test_it_runs_and_its_assertions_hold(file: Path, kernel: KernelManager, tmp_path: Path) -> None:
    notebook = nbformat.read(file, as_version=4)
    assert any("assert " in cell.source for cell in notebook.cells if cell.cell_type == "code")
    notebook.cells.insert(0, nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {tmp_path}"))
    NotebookClient(notebook, km=kernel, timeout=300).execute()


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_what_is_stored_is_small_and_tells_nothing_of_a_machine(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert len(text) < 400_000 and not any(word in text for word in ("/home/", "/tmp/", "site-packages", "Traceback"))
    assert all(not cell.metadata for cell in nbformat.reads(text, as_version=4).cells)
