import pytest


@pytest.fixture
def write(tmp_path):
    def write_file(name: str, content: str | bytes):
        file = tmp_path / name
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return file

    return write_file
