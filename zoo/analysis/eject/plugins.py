"""Plain forms of parts that plugins bring.

A part names its plain form in an attribute `plain`, "module:object" in a module that imports torch alone; its other
definitions there are taken along where it reads them. The object is called as the plain part in its place is, with
those of these arguments that it has parameters for:

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

from .program import definitions_of, methods, read_plain

if TYPE_CHECKING:
    from zoo.models import ZooConfig


def plain_forms(config: ZooConfig) -> dict[str, tuple[str, dict[str, cst.CSTNode]]]:
    """Plain forms that plugins give for the parts of a model: name and all definitions of the module, by field."""
    found = {}
    for field, registry in PART_FIELDS.items():
        part = registry.get(getattr(config, field))
        if not registry.origin(getattr(config, field)).built_in and (path := getattr(part, "plain", None)):
            found[field] = read_form(path)
    return found


def read_form(path: str) -> tuple[str, dict[str, cst.CSTNode]]:
    """Read the module of a plain form, which is not imported; RegistrationError if that does not work."""
    module, _, name = path.partition(":")
    try:
        spec = find_spec(module)
    except ModuleNotFoundError:
        spec = None
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise RegistrationError(f"plain={path!r} was given by a part, but there is no module {module!r}")
    definitions = definitions_of(Path(spec.origin).read_text(encoding="utf-8"))
    if name not in definitions:
        names = ", ".join(definitions)
        raise RegistrationError(f"plain={path!r} was given by a part, but {module} defines {names or 'nothing'}")
    if taken := definitions.keys() & read_plain().keys():
        raise RegistrationError(f"{', '.join(sorted(taken))} of {module} is a name of the plain code; give another one")
    return name, definitions


def with_forms(
    definitions: dict[str, cst.CSTNode], forms: dict[str, tuple[str, dict[str, cst.CSTNode]]]
) -> dict[str, cst.CSTNode]:
    """The plain code with the forms of plugins, each in the place of the refusal of its field."""
    done = dict(definitions)
    for field, (name, others) in forms.items():
        replacement = Replacement(field, name, others[name])
        functions = (place for place, node in definitions.items() if isinstance(node, cst.FunctionDef))
        done |= others | {
            place: cst.ensure_type(done[place].visit(replacement), cst.FunctionDef) for place in functions
        }
    return done


def hooks(config: ZooConfig) -> tuple[str, ...]:
    """Role of a plugin's plain position: "embed", "bias"."""
    form = plain_forms(config).get("position")
    return () if form is None else tuple(name for name in ("embed", "bias") if name in methods(form[1][form[0]]))


class Replacement(cst.CSTTransformer):
    """Call a plain form, by its name and definition, where its field would be refused."""

    def __init__(self, field: str, name: str, form: Any) -> None:
        super().__init__()
        self.field, self.name = field, name
        init = methods(form).get("__init__") if isinstance(form, cst.ClassDef) else form
        self.takes = [] if init is None else [one.name.value for one in init.params.params]
        self.given: list[str] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.given = [one.name.value for one in node.params.params]

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine:
        refused = m.Call(m.Name("NoPlainForm"), [m.Arg(m.SimpleString(f'"{self.field}"'))])
        if not m.matches(updated_node, m.SimpleStatementLine(body=[m.Raise(exc=refused)])):
            return updated_node
        arguments = ", ".join(name for name in self.given if name in self.takes)
        statement = cst.parse_statement(f"return {self.name}({arguments})")
        assert isinstance(statement, cst.SimpleStatementLine)
        return statement


def no_plain_form(name: str, value: Any) -> UnsupportedOperationError:
    return UnsupportedOperationError(
        f"{name}={value!r} has no plain form, so no file can be written; a plugin gives one by the attribute "
        "`plain` of its part, see docs/plugins.md; `zoo show --code` prints the code that the model runs"
    )
