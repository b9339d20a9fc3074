"""The explorer's page on Gradio: layout and events. The contents come from `views`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from zoo.base.errors import ZooError
from zoo.base.printed import Note, Page, Part, as_html
from zoo.converters.errors import require
from zoo.registry import VARIANTS

from . import views

if TYPE_CHECKING:
    from zoo.serving.local import LocalServer

FIRST_TEXT = "Where is the house?"
REPORT = "report.html"  # The file that a comparison's folder has for people to read
REPORT_HEIGHT = 1400  # Pixels of a report on the page

PICTURES = ("/favicon.ico", "/manifest.json", "/static/img/logo_nosize.svg")
"""Files of Gradio that its page asks for without the token."""

SPACE = "SPACE_ID"  # The environment variable that every Space has
ONE_AT_A_TIME = Lock()  # Gradio answers in several threads, and transformers loads one model at a time

COLUMNS = '<div class="columns">{}</div>'
STYLE = """
.gradio-container{width:100%!important;max-width:86rem!important;margin:0 auto!important;
padding:1.6rem 1.6rem 4rem!important}
footer{display:none!important}
.columns{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,30rem),1fr));
gap:1.2rem 2.5rem;padding:.6rem 0}
.columns>div{min-width:0}
.zoo-shown svg{height:auto}
#heading p{margin:.1rem 0 .6rem;opacity:.75}
"""

Look = Callable[[list[str], str], Iterable[Iterable[Part]]]
"""Chosen models and text to the views of all models, side by side."""


def each(view: Callable[[str, str], Iterable[Part]]) -> Look:
    return lambda names, text: [view(name, text) for name in names]


LOOKS: dict[str, Look] = {
    "Outputs": lambda names, text: [views.outputs(names, text)],
    "Attention": each(views.heads),
    "Layer by layer": each(views.layers),
    "Drawing": each(views.drawn),
}
"""The tabs that show the chosen models on the text."""


def written(columns: Callable[[], Iterable[Iterable[Part]]]) -> str:
    """Render views side by side as HTML; an error is rendered as its one sentence."""
    try:
        with ONE_AT_A_TIME:
            return COLUMNS.format("".join(as_html(parts) for parts in columns()))
    except ZooError as error:
        return COLUMNS.format(as_html([Note(str(error))]))


def look(tab: str, names: list[str], text: str) -> str:
    """Fill one of the tabs of `LOOKS`."""
    if not names or not text.strip():
        return written(lambda: [[Note("Choose a model and type a text.")]])
    return written(lambda: LOOKS[tab](names, text))


def gradio() -> Any:
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"
    return require("explore", "gradio")


def build_page(
    models: Sequence[str], *, text: str = FIRST_TEXT, reports: Iterable[Path] = (), others: bool = True
) -> Any:
    """Lay out the page, as Gradio's `Blocks`; `others` lets users type in other models, as is right on their own."""
    gr = gradio()
    with gr.Blocks(title="zoo explore", analytics_enabled=False, fill_width=True) as page:
        gr.Markdown("# zoo explore\n\nModels side by side, on your text.", elem_id="heading")
        with gr.Row():
            chosen = gr.Dropdown(
                list(models),
                value=list(models[:2]),
                multiselect=True,
                allow_custom_value=others,
                label="Models",
                scale=3,
            )
            typed = gr.Textbox(text, label="Text", elem_id="text", submit_btn="Look", scale=2)
        current = gr.State(next(iter(LOOKS)))
        with gr.Tabs():
            places = [look_tab(gr, tab, current, chosen, typed) for tab in LOOKS]
            quirks_tab(gr, models, typed, others)
            variants_tab(gr)
            if folders := sorted(map(str, reports)):
                reports_tab(gr, folders)

        def again(tab: str, names: list[str], words: str) -> list[Any]:
            return [look(tab, names, words) if tab == own else gr.skip() for own in LOOKS]

        asked = [page.load, typed.submit, chosen.change]
        gr.on(asked, again, [current, chosen, typed], places, show_progress="minimal", api_name=False)
    return page


def look_tab(gr: Any, tab: str, current: Any, chosen: Any, typed: Any) -> Any:
    """Lay out a tab that shows the chosen models on the text, once it is opened."""
    with gr.Tab(tab, id=tab) as opened:
        place = html(gr, tab.lower().replace(" ", "-"))
    opened.select(
        lambda names, words: (tab, look(tab, names, words)), [chosen, typed], [current, place], api_name=False
    )
    return place


def html(gr: Any, name: str) -> Any:
    """Lay out a place for what a view shows, without Gradio's own looks."""
    return gr.HTML(elem_id=name, min_height=240, apply_default_css=False)


def quirks_tab(gr: Any, models: Sequence[str], typed: Any, others: bool) -> None:
    """Lay out the tab on which defects of an original are switched on and off."""

    def known(name: str) -> Any:
        try:
            found = views.quirks_of(name)
        except ZooError:
            found = {}
        return gr.update(choices=list(found), value=list(found)[:1])

    def show(name: str, quirks: list[str], words: str) -> str:
        return written(lambda: [views.quirky(name, quirks, words)])

    with gr.Tab("Quirks", id="Quirks") as opened:
        model = gr.Dropdown(list(models), value=models[0], allow_custom_value=others, label="Model")
        quirks = gr.CheckboxGroup([], label="Quirks of the original", elem_id="choice-of-quirks")
        place = html(gr, "quirks")
    gr.on([opened.select, model.change], known, [model], [quirks], api_name=False)
    gr.on([quirks.change, typed.submit], show, [model, quirks, typed], [place], api_name=False)


def variants_tab(gr: Any) -> None:

    def show(a: str, b: str) -> str:
        return written(lambda: [views.variants(a, b)])

    names = list(VARIANTS)
    with gr.Tab("Variants", id="Variants") as opened:
        with gr.Row():
            pair = [
                gr.Dropdown(names, value=name, allow_custom_value=True, label="Variant, possibly with settings")
                for name in ("post-norm", "pre-norm")
            ]
        place = html(gr, "variants")
    gr.on([opened.select, *(one.change for one in pair)], show, pair, [place], api_name=False)


def reports_tab(gr: Any, folders: Sequence[str]) -> None:

    def show(folder: str) -> str:
        if folder not in folders:  # browsers may send anything
            return written(lambda: [[Note(f"no comparison in {folder} was asked for")]])
        report = (Path(folder) / REPORT).read_text(encoding="utf-8")
        return written(lambda: [[Page(report, f"Report of {folder}", REPORT_HEIGHT)]])

    with gr.Tab("Reports", id="Reports") as opened:
        folder = gr.Dropdown(list(folders), value=folders[0], label="Comparison")
        place = html(gr, "reports")
    gr.on([opened.select, folder.change], show, [folder], [place], api_name=False)


def find_reports(folder: Path) -> Iterator[Path]:
    """Find the comparisons in a folder, or that it is one."""
    return (file.parent for file in sorted(folder.rglob(REPORT)))


def launch(page: Any, port: int | None = None) -> LocalServer:
    """Prepare to serve the page to this machine alone, with nothing from elsewhere on it.

    The server's `address` has a token, without which it answers nothing; `run()` serves until Ctrl-C, and a `with`
    block until its end. The port is by default the first free one from 7860 on.
    """
    gr = gradio()
    from fastapi import FastAPI

    from zoo.serving.local import LocalServer

    closed = {"show_error": False, "mcp_server": False, "enable_monitoring": False, "ssr_mode": False}
    app = gr.mount_gradio_app(FastAPI(openapi_url=None), page, path="/", **appearance(gr), **closed)
    return LocalServer(app, port=port, public=PICTURES)


def publish(page: Any) -> None:
    """Serve the page: publicly in a Space of the Hub, and to this machine alone anywhere else."""
    if SPACE in os.environ:
        page.launch(server_name="0.0.0.0", share=False, quiet=True, **appearance(gradio()))
        return
    server = launch(page)
    print(f"Explorer: {server.address}", flush=True)
    server.run()


def appearance(gr: Any) -> dict[str, Any]:
    letters = ["system-ui", "-apple-system", "Segoe UI", "Helvetica Neue", "Arial", "sans-serif"]
    theme = gr.themes.Base(
        primary_hue="blue", neutral_hue="slate", font=letters, font_mono=["ui-monospace", "monospace"]
    )
    return {"footer_links": [], "css": STYLE, "theme": theme}
