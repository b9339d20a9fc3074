import pytest


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: str | bytes):
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write_file


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with a text to train on and one to evaluate on."""
    text = "The cats sleep here. The dog that saw the cats sleeps there. " * 40
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.txt").write_text(text)
    (folder / "heldout.txt").write_text(text[::-1])
    return folder
