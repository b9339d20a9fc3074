"""This repository's own pages as pages of the site, and the source files that pages link to."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = "source"
"""Where source files are shown."""

DOCUMENTS = {
    "index.md": "README.md",
    "pt/index.md": "README.pt-BR.md",
    "contributing.md": "CONTRIBUTING.md",
    "changelog.md": "CHANGELOG.md",
    "security.md": "SECURITY.md",
}
"""Pages of the site that are files at the top of the repository."""

WIDE = ("index.md", "pt/index.md")
"""Pages without columns at their sides, as their code and tables are wide."""

LINK = re.compile(r"(?:(?<=\]\()|(?<=src=\"))(?![a-z]+:|#|/)([^)#\s\"]+)(#[^)\s\"]*)?(?=[)\"])")


def from_root(file: str) -> str:
    """Read a page at the top of the repository, with links as they are from the site's page of it."""
    text = (ROOT / file).read_text(encoding="utf-8")
    (page,) = (page for page, name in DOCUMENTS.items() if name == file)
    head = "---\nhide: [navigation, toc]\n---\n\n" if page in WIDE else ""
    return head + LINK.sub(lambda link: _relative(_in_site(link[1]), page) + (link[2] or ""), text)


def to_site(markdown: str, page: str) -> str:
    """Turn links of a page in docs/ that leave the folder into links to the site's pages that show the same."""

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), link[1]))
        if path.startswith("docs/") or page in DOCUMENTS:
            return link[0]
        return _relative(_in_site(path), page) + (link[2] or "")

    return LINK.sub(target, markdown)


def linked_sources(texts: Iterable[str]) -> list[str]:
    """Find the source files that pages of docs/ link to, by their paths from the top of the repository."""
    found = {link[1].removeprefix("../") for text in texts for link in LINK.finditer(text) if link[1].startswith("../")}
    return sorted(path for path in found if (ROOT / path).exists() and path not in DOCUMENTS.values())


def source_page(path: str) -> str:
    """Show a source file, or what a folder holds, as Markdown."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(one.name for one in place.iterdir() if not one.name.startswith(("_", ".")))
        return f"# {path}\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = place.read_text(encoding="utf-8")
    if place.suffix == ".md":
        return text
    return f"# {path}\n\n````{place.suffix[1:] or 'bash'}\n{text}````\n"


def _in_site(path: str) -> str:
    """Where the site shows a file of the repository."""
    pages = {file: page for page, file in DOCUMENTS.items()}
    if path in pages:
        return pages[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"{SOURCE}/{path}.md"


def _relative(target: str, page: str) -> str:
    return os.path.relpath(target, posixpath.dirname(page) or ".")
