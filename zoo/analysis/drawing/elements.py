"""Elements of SVG as text: the one writer of everything that the zoo draws."""

from __future__ import annotations

from markupsafe import Markup, escape


def element(tag: str, *children: Markup | str, **attributes: object) -> Markup:
    written = "".join(
        f' {name.rstrip("_").replace("_", "-")}="{escape(rounded(value))}"'
        for name, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{tag}{written}>{Markup('').join(children)}</{tag}>" if children else f"<{tag}{written}/>")


def lines(*elements: Markup) -> Markup:
    return Markup("\n").join(["", *elements, ""])


def rounded(value: object) -> object:
    """Write a number with two decimals at most, anything else as it is."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else value
