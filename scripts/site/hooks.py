"""Pages of the documentation site besides docs/: this repository's own pages, the gallery, and the reference.

MkDocs calls the functions named "on_...". Pages are made while the site is built, and stay out of docs/.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import gallery
import reference
from documents import DOCUMENTS, ROOT, SOURCE, from_root, linked_sources, source_page, to_site
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ASSETS = Path(__file__).with_name("assets")
PACKAGE = tempfile.TemporaryDirectory()
"""The zoo as it is when installed, where registry/ and converters/ are zoo.registry and zoo.converters."""


@event_priority(100)  # before mkdocstrings reads it
def on_config(config: MkDocsConfig) -> None:
    """Let the reference be read from the files of this repository, which are not imported for it."""
    package = Path(PACKAGE.name, "zoo")
    shutil.rmtree(package, ignore_errors=True)
    for source, target in (
        ("zoo", package),
        ("registry", package / "registry"),
        ("converters", package / "converters"),
    ):
        shutil.copytree(ROOT / source, target, ignore=shutil.ignore_patterns("shipped", "__pycache__"))
    config.plugins["mkdocstrings"].config.handlers["python"]["paths"] = [PACKAGE.name]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made."""
    made: dict[str, str | bytes] = {page: from_root(file) for page, file in DOCUMENTS.items()}
    made |= gallery.pages() | reference.pages()
    made |= {f"assets/{file.name}": file.read_bytes() for file in ASSETS.iterdir()}
    texts = [file.content_string for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    made |= {f"{SOURCE}/{path}.md": source_page(path) for path in linked_sources(texts)}
    for path, content in made.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Leave out click's word for an option without a default, which mkdocs-click prints."""
    return html.replace("<code>Sentinel.UNSET</code>", "")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the dialog of the search, which the theme does not."""
    dialog = 'data-md-component="search" role="dialog"'
    return output.replace(dialog, f'{dialog} aria-label="Search"')


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let links to files of the repository lead to where the site shows them."""
    return to_site(markdown, page.file.src_uri)
