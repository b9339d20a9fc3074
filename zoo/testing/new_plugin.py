"""New plugins: a package with one part or variant, and its tests, of the templates in `plugin/`."""

import re
from pathlib import Path

import jinja2

from zoo.base.errors import NameSyntaxError
from zoo.base.files import write_file
from zoo.base.folders import check_output, written_whole

KINDS = {
    "norm": "gpt2-style:norm={name}",
    "position": "gpt2-style:position={name}",
    "activation": "gpt2-style:hidden_act={name}",
    "mixer": 'gpt2-style:mixer={name},layer_types=["linear_attention", "full_attention"]',
    "variant": "{name}",
}
"""The variant that the tests of each kind of plugin build."""


def plugin_files(kind: str, name: str) -> dict[str, str]:
    module = name.replace("-", "_")
    named = {"name": name, "module": module, "variant": repr(KINDS[kind].format(name=name))}
    loader = jinja2.FileSystemLoader(Path(__file__).with_name("plugin"))
    templates = jinja2.Environment(loader=loader, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    sources = {"pyproject.toml": "pyproject.toml", f"{module}.py": f"{kind}.py", f"test_{module}.py": "tests.py"}
    return {file: templates.get_template(f"{source}.jinja").render(named) for file, source in sources.items()}


def new_plugin(kind: str, folder: Path) -> tuple[str, list[Path]]:
    name = folder.absolute().name
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or name == "zoo":
        problem = f"{name!r} cannot be the name of a plugin"
        raise NameSyntaxError(f"{problem}; valid: lower-case letters, digits and hyphens, e.g. my-{kind}")
    check_output(folder)
    files = plugin_files(kind, name)
    with written_whole(folder) as made:
        for file, content in files.items():
            write_file(made / file, content)
    return KINDS[kind].format(name=name), [folder / file for file in files]
