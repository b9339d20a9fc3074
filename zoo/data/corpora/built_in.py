"""Registers the corpora that the zoo knows: corpora.yaml, and in files/ a table of files for those that have many."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from zoo.registry import Corpus, CorpusFile, register_corpus

HERE = Path(__file__).parent


def files_of(name: str, listed: list[dict[str, Any]]) -> tuple[CorpusFile, ...]:
    table = HERE / "files" / f"{name}.tsv"
    if table.is_file():
        rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()[1:]]
        return tuple(CorpusFile(path, digest, int(size) if size else None) for path, size, digest in rows)
    return tuple(CorpusFile(**file) for file in listed)


for _name, _definition in yaml.safe_load((HERE / "corpora.yaml").read_text(encoding="utf-8")).items():
    register_corpus(Corpus(name=_name, **{**_definition, "files": files_of(_name, _definition.get("files", []))}))
