"""Plain forms of parts that plugins bring.

A part names its plain form in an attribute `plain`, "module:object" in a module that imports torch and Python's own
modules alone; its imports and other definitions are taken along where they are read. The object is called as the plain
part in its place is, with those of these arguments that it has parameters for:

- norm: `config`, `width`, `eps`
- attention: `config`, `layer_idx`, `is_cross`; its forward has the arguments of the plain `Attention`
- feed_forward: `config`, `layer_idx`
- mixer: `config`; its forward has `x` and `cache`
- residual: `config`, `layer_idx`, `opens_layer`; its forward has `x` and `sublayer`
- position: `config`; it has `embed(x, positions)`, or `bias(queries, keys)`, or both
- hidden_act: a function of `x`
- initializer: a function of `weight`, `name` and `config`
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst import matchers as m

from zoo.base.errors import RegistrationError, UnsupportedOperationError
from zoo.models.parts import PART_FIELDS

from .program import Plain, methods, parameters, read_file, read_plain

if TYPE_CHECKING:
    from zoo.models import ZooConfig


def plain_forms(config: ZooConfig) -> dict[str, tuple[str, Plain]]:
    """Plain forms that plugins give for the parts of a model: name and the whole module, by field."""
    found = {}
    for field, registry in PART_FIELDS.items():
        part = registry.get(getattr(config, field))
        if not registry.origin(getattr(config, field)).built_in and (path := getattr(part, "plain", None)):
            found[field] = read_form(path)
    return found


def read_form(path: str) -> tuple[str, Plain]:
    """Read the module of a plain form, which is not imported; RegistrationError if that does not work."""
    module, _, name = path.partition(":")
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise RegistrationError(f"plain={path!r} was given by a part, but there is no module {module!r}")
    form = read_file(Path(spec.origin))
    if name not in form.definitions:
        names = ", ".join(form.definitions)
        raise RegistrationError(f"plain={path!r} was given by a part, but {module} defines {names or 'nothing'}")
    if taken := form.definitions.keys() & read_plain().definitions.keys():
        raise RegistrationError(f"{', '.join(sorted(taken))} of {module} is a name of the plain code; give another one")
    return name, form


def with_forms(plain: Plain, forms: dict[str, tuple[str, Plain]]) -> Plain:
    """The plain code with the forms of plugins, each called in the place of the refusal of its field."""
    done, imports = dict(plain.definitions), dict(plain.imports)
    for field, (name, form) in forms.items():
        done, imports = done | form.definitions, form.imports | imports
        called = methods(form.definitions[name])
        taken = next((parameters(called[one]).keys() for one in ("__init__", name) if one in called), ())
        refusal = m.Raise(m.Call(m.Name("NoPlainForm"), [m.Arg(m.SimpleString(f'"{field}"'))]))
        for place, node in plain.definitions.items():
            if isinstance(node, cst.FunctionDef):
                call = f"{name}({', '.join(one for one in parameters(node) if one in taken)})"
                returned = cst.parse_statement(f"return {call}")
                done[place] = cst.ensure_type(
                    m.replace(done[place], m.SimpleStatementLine([refusal]), returned), cst.FunctionDef
                )
    return Plain(done, imports)


def hooks(config: ZooConfig) -> tuple[str, ...]:
    """Role of a plugin's plain position: "embed", "bias"."""
    found = plain_forms(config).get("position")
    if found is None:
        return ()
    name, form = found
    return tuple(hook for hook in ("embed", "bias") if hook in methods(form.definitions[name]))


def no_plain_form(name: str, value: Any) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"{name}={value!r} has no plain form, so no file can be written; a plugin gives one by the attribute "
        "`plain` of its part, see docs/plugins.md; `zoo show --code` prints the code that the model runs"
    )
