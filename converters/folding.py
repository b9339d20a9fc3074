"""Source without what one configuration does not use: decided branches, long docstrings, hooks of fast paths."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields
from functools import cache
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import libcst as cst
from libcst import matchers as m

from zoo.analysis.syntax.folding import UNKNOWN, BranchFolder, Unread
from zoo.analysis.syntax.modules import Place
from zoo.analysis.syntax.reading import Names, assigned, code, is_docstring, names
from zoo.analysis.syntax.walking import Visitor
from zoo.fast.switches import FastPaths
from zoo.models.embedding import Position
from zoo.models.feed_forwards.routing import has_router_loss
from zoo.models.parts import POSITIONS
from zoo.models.transformer import transformer_of
from zoo.registry import Registry


class OpenSettingError(Exception):
    """A bundle does not fix the setting that was read."""


class Settings:
    """A configuration with fixed settings, which may decide; reading any other raises OpenSettingError."""

    def __init__(self, config: Any, fixed: Mapping[str, Any]) -> None:
        self.config, self.fixed = config, fixed
        self.seen = set[str]()  # Settings that were read since it was cleared
        self.decided: dict[Place, set[str]] = {}  # Settings that decided something, by module and definition

    def __getattr__(self, name: str) -> Any:
        properties = {"stack": ("is_decoder", "is_encoder_decoder"), "mixer_layer_type": ("mixer",)}
        properties |= {"prediction_depth": ("num_nextn_predict_layers",)}
        needed = properties.get(name, (name,))
        if not all(each in self.fixed for each in needed):
            raise OpenSettingError(name)
        self.seen.update(needed)
        return getattr(self.config, name, self.fixed.get(name))

    @property
    def rotates_anew(self) -> bool:
        """Whether the position part may rotate cached keys again in a longer text."""
        part: Any = POSITIONS.get(self.config.position)
        base: Any = Position
        return part.changes_after.__func__ is not base.changes_after.__func__

    def has_quirk(self, name: str) -> bool:
        return name in self.quirks


class KnownModule:
    """Stand-in for `self` in a module: its configuration, and for a stack its variant and positions."""

    can_unpad = False

    def __init__(self, config: Settings, missing: Collection[str]) -> None:
        self.config, self.missing = config, missing

    def __getattr__(self, name: str) -> None:
        if name not in self.missing:
            raise OpenSettingError(name)

    @property
    def is_cross(self) -> bool:
        """False in a model without cross attention."""
        if self.config.add_cross_attention or self.config.is_encoder_decoder:
            raise OpenSettingError("is_cross")
        return False

    @property
    def position(self) -> Any:
        """Class attributes of a stack's position part."""
        if self.transformer.position is not None:
            raise OpenSettingError("position")
        part = POSITIONS.get(self.config.position)
        return SimpleNamespace(has_bias=part.has_bias, rotates=part.rotates)

    @property
    def transformer(self) -> Any:
        """The blueprint; reading it depends on the variant and its quirks."""
        self.config.seen.update(("variant", "quirks"))
        return transformer_of(self.config.config)


@cache
def known_names(module: str) -> dict[str, Any]:
    """Names that conditions on settings read in a module: registries, classes, functions of a configuration."""
    functions = (transformer_of, has_router_loss)
    named = vars(import_module(module))
    known = {name: value for name, value in named.items() if isinstance(value, (Registry, type)) or value in functions}
    never = FastPaths(**{field.name: "never" for field in fields(FastPaths)})
    return {**known, "current": lambda: never, "getattr": getattr, "bool": bool}


UNREAD = ("can_unpad", "built_of", "drawn_as", "input_grows", "parameter_roles")
"""Attributes that only fast paths and drawings read."""

DECORATORS = m.Name("with_captured_steps") | m.Call(m.Attribute(attr=m.Name("register")) | m.Name("register"))
"""Decorators of fast paths, and those by which a plugin registers: a bundle fills its tables itself."""

RANGES = ("WIDTH", "COUNT", "IDS", "TOKEN", "PROBABILITY", "FINITE", "ANY_NUMBER")
FACTS = ("least", "greatest", "positive", "choices", "usual", "decoder_of")
"""Facts of settings that a configuration reads; cards, drawings and exports read the others."""

WITHOUT_SOURCE = {"encoder_hidden_states is None": True, "encoder_hidden_states is not None": False}
WITHOUT_SOURCE |= {f"context.{test}": found for test, found in WITHOUT_SOURCE.items()}
"""Tests of models in which no decoder reads an encoder's outputs."""

METHODS = (  # Of ZooPreTrainedModel, for folders, warnings and balancing of experts; a bundle has transformers' own
    *("from_pretrained", "_load_pretrained_model", "save_pretrained", "_upload_modified_files"),
    *("train", "warn_in_eval_mode", "_ddp_params_and_buffers_to_ignore"),
)


class Folder(BranchFolder):
    """Decide branches by settings and `missing` classes and attributes, and shorten docstrings."""

    def __init__(self, definition: Place, settings: Settings, missing: Collection[str]) -> None:
        self.definition, self.settings, self.missing = definition, settings, missing
        self.known = known_names(definition[0])
        self.within: list[str] = []
        self.functions: list[Names] = []
        self.locals: list[dict[str, tuple[Any, set[str]]]] = []

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        self.within.append(node.name.value)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.within.append(node.name.value)
        self.functions.append(names(node.body))
        self.locals.append({})

    def leave_ClassDef(self, original_node: cst.ClassDef, updated_node: cst.ClassDef) -> cst.ClassDef:
        self.within.pop()
        body = short(updated_node.body)
        members = [one for place, one in enumerate(body.body) if place == 0 or not is_docstring(one)]
        return updated_node.with_changes(body=body.with_changes(body=members), decorators=decorators(updated_node))

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef | cst.RemovalSentinel:
        self.within.pop()
        self.functions.pop()
        self.locals.pop()
        if self.within[:1] == ["ZooPreTrainedModel"] and updated_node.name.value in METHODS:
            return cst.RemoveFromParent()
        if self.within == ["Generation"] and not self.settings.rotates_anew:
            return cst.RemoveFromParent()
        if self.within == ["TargetGeneration"] and not self.settings.config.is_encoder_decoder:
            return cst.RemoveFromParent()
        body = short(without_unread(updated_node.body))
        return updated_node.with_changes(body=body, decorators=decorators(updated_node))

    def value(self, node: cst.BaseExpression) -> Any:
        """Value of an expression under the fixed settings, or UNKNOWN."""
        text = code(node)
        if text.startswith(("is_newer(", "zoo_version(")):  # a configuration is of the version of its code
            return False
        if text in WITHOUT_SOURCE and not self.has_source():
            return WITHOUT_SOURCE[text]
        if text in ("True", "False", "None", "TYPE_CHECKING"):
            return text == "True" if text != "None" else None
        local = {name: found for name, found in (self.locals or [{}])[-1].items() if re.search(rf"\b{name}\b", text)}
        if not (local or any(word in text for word in ("config", "self.", "current()"))):
            return UNKNOWN
        self.settings.seen.clear()
        own = self.settings if self.within[:1] == ["ZooConfig"] else KnownModule(self.settings, self.missing)
        if "self.position" in text and self.within[:1] not in (["ZooStack"], ["ZooConfig"]):
            return UNKNOWN
        names = {**self.known, **{name: value for name, (value, _) in local.items()}}
        try:
            # The library's own source.
            found = eval(text, {"__builtins__": {}}, {**names, "config": self.settings, "self": own})
        except Exception:  # an open setting, or a name without a value before a forward runs
            return UNKNOWN
        seen = self.settings.seen.union(*(read for _, read in local.values()))
        if not (seen or "current()" in text or "self." in text):
            return UNKNOWN
        self.decide_by(*seen)
        return found

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        """Nothing is an instance of a class that is not there, and no warning is given."""
        if m.matches(updated_node, m.Call(m.Attribute(m.Name("self"), m.Name("warn_in_eval_mode")))):
            return updated_node.args[0].value
        if m.matches(updated_node, m.Call(m.Attribute(m.Name("MASKS"), m.Name("get")))) and not self.has_mixer():
            return cst.Subscript(
                cst.Name("MASKS"), [cst.SubscriptElement(cst.Index(updated_node.args[0].value))]
            )  # the other masks are those of layers without attention
        if m.matches(updated_node, m.Call(m.Name(value=m.MatchRegex(r"\w+Error")), args=[m.Arg()])):
            return first_clause(updated_node)
        if not m.matches(updated_node, m.Call(m.Name("isinstance"), args=[m.Arg(), m.Arg()])):
            return updated_node
        kinds = updated_node.args[1].value
        if isinstance(kinds, cst.Name):
            return cst.Name("False") if kinds.value in self.missing else updated_node
        if isinstance(kinds, cst.Tuple):
            present = self.present(kinds)
            kind = present.elements[0].value if len(present.elements) == 1 else present
            return updated_node.with_changes(args=(updated_node.args[0], cst.Arg(kind)))
        return updated_node

    def decide_by(self, *settings: str) -> None:
        self.settings.decided.setdefault(self.definition, set()).update(settings)

    def has_mixer(self) -> bool:
        self.decide_by("mixer")
        return self.settings.config.mixer_layer_type is not None

    def has_source(self) -> bool:
        """Whether there is an encoder with outputs that a decoder reads."""
        self.decide_by("add_cross_attention", "is_encoder_decoder")
        return bool(self.settings.config.is_encoder_decoder or self.settings.config.add_cross_attention)

    def present(self, kinds: cst.Tuple) -> cst.Tuple:
        """A tuple of classes without those that are not there."""
        left = [one for one in kinds.elements if code(one.value) not in self.missing]
        left[-1:] = [one.with_changes(comma=cst.MaybeSentinel.DEFAULT) for one in left[-1:]]
        return kinds.with_changes(elements=left)

    def leave_ComparisonTarget(
        self, original_node: cst.ComparisonTarget, updated_node: cst.ComparisonTarget
    ) -> cst.ComparisonTarget:
        """The class of an object is none that is not there."""
        kinds = updated_node.comparator
        if not (isinstance(updated_node.operator, cst.In) and isinstance(kinds, cst.Tuple)):
            return updated_node
        return updated_node.with_changes(comparator=self.present(kinds))

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> cst.Assign:
        """Write out settings that are off, and follow variables with a part or a setting."""
        text, target = code(updated_node.value), updated_node.targets[0].target
        if text == "False" != code(original_node.value) and isinstance(target, cst.Name) and self.functions:
            if self.functions[-1].written.count(target.value) == 1:
                self.locals[-1][target.value] = False, {"is_encoder_decoder", *self.settings.seen}
            return updated_node
        if not re.fullmatch(r"(self\.)?config\.\w+|[A-Z]+\.get\([\w.]+\)", text):
            return updated_node
        value = self.value(updated_node.value)
        if value is not UNKNOWN and isinstance(target, cst.Name) and self.locals:
            self.locals[-1][target.value] = value, set(self.settings.seen)
        is_off = value is None or value is False
        return updated_node.with_changes(value=cst.Name(str(value))) if is_off else updated_node

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> cst.SimpleStatementLine | cst.RemovalSentinel:
        statement = updated_node.body[0]
        if isinstance(statement, cst.Assign) and code(statement.targets[0].target).removeprefix("self.") in UNREAD:
            return cst.RemoveFromParent()
        of_source = m.matches(statement, m.AnnAssign(target=m.Name("decoder_inputs")))
        if of_source and self.within == ["Transformer"] and not self.has_source():
            return cst.RemoveFromParent()
        if m.matches(statement, m.Expr(m.Name())):
            return cst.RemoveFromParent()
        return updated_node

    def leave_Dict(self, original_node: cst.Dict, updated_node: cst.Dict) -> cst.Dict:
        """Leave out where cards name a setting, and records of outputs of modules that are not there."""
        recorder = re.compile(rf"OutputRecorder\((?:{'|'.join(self.missing) or ' '}),.*")
        texts = [code(one.value) for one in updated_node.elements]
        kept = [
            one
            for one, text in zip(updated_node.elements, texts, strict=True)
            if text != "ELSEWHERE" and not recorder.fullmatch(text)
        ]
        if len(kept) == len(updated_node.elements):
            return updated_node
        kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return updated_node.with_changes(elements=kept)

    def leave_AnnAssign(self, original_node: cst.AnnAssign, updated_node: cst.AnnAssign) -> cst.AnnAssign:
        """Keep of the facts of a setting those that a configuration reads."""
        if self.within != ["Fields"] or not isinstance(updated_node.value, cst.Call):
            return updated_node
        default, _, *facts = updated_node.value.args
        kept = [code(default.value)]
        kept += [code(one.value) for one in facts if one.keyword is None and code(one.value) in RANGES]
        named = {one.keyword.value: code(one.value) for one in facts if one.keyword is not None}
        kept += [f"{name}={value}" for name, value in named.items() if name in FACTS]
        return updated_node.with_changes(value=cst.parse_expression(f"setting({', '.join(kept)})"))


def first_clause(error: cst.Call) -> cst.Call:
    """An error with its message up to the first semicolon: what was given, without what else there is."""
    first: Any = error.args[0].value
    while isinstance(first, cst.ConcatenatedString):
        first = first.left
    kept = None
    if isinstance(first, cst.SimpleString) and ";" in first.value:
        kept = first.with_changes(value=first.value.partition(";")[0] + first.quote)
    for number, part in enumerate(first.parts if isinstance(first, cst.FormattedString) else ()):
        if kept is None and isinstance(part, cst.FormattedStringText) and ";" in part.value:
            before = part.with_changes(value=part.value.partition(";")[0])
            kept = first.with_changes(parts=[*first.parts[:number], before])
    return error if kept is None else cst.Call(error.func, [cst.Arg(kept)])


def without_unread(body: Any) -> Any:
    """A body without loops of nothing, and without variables that are never read and need no call."""
    found, calls = names(body), re.compile(r"\b(?!get|bool)\w+\(")
    unread = [
        name
        for name, one in assigned(body).items()
        if name not in found.read and found.written.count(name) == 1 and not calls.search(code(one))
    ]
    kept = Unread(unread).visit(body)
    return without_unread(kept) if unread else kept


def decorators(node: cst.ClassDef | cst.FunctionDef) -> list[cst.Decorator]:
    return [one for one in node.decorators if not m.matches(one.decorator, DECORATORS)]


def short(body: Any) -> Any:
    """A body with the first line of its docstring alone."""
    first = body.body[0]
    if not m.matches(first, m.SimpleStatementLine([m.Expr(m.SimpleString())])):
        return body
    text = first.body[0].value.raw_value
    line = " ".join(text.strip().partition("\n\n")[0].split())
    return body.with_changes(body=[cst.parse_statement(f'"""{line}"""'), *body.body[1:]]) if "\n" in text else body


class WithoutTests(Visitor):
    """Leave out classes that only annotations, tests of an object's class and recorders of outputs mention."""

    def leave_Annotation(self, original_node: cst.Annotation, updated_node: cst.Annotation) -> cst.Annotation:
        return updated_node.with_changes(annotation=cst.Ellipsis())

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        match updated_node:
            case cst.Call(cst.Name("isinstance"), [subject, _]):
                return subject.value
            case cst.Call(cst.Name("OutputRecorder")):
                return updated_node.func
        return updated_node

    def leave_Comparison(self, original_node: cst.Comparison, updated_node: cst.Comparison) -> cst.BaseExpression:
        match updated_node:
            case cst.Comparison(cst.Call(cst.Name("type")), [cst.ComparisonTarget(cst.In())]):
                return updated_node.left
        return updated_node


def folded(definition: Place, statement: Any, settings: Settings, missing: Collection[str] = ()) -> list[Any]:
    """Fold a statement of a definition, into none, one or several statements."""
    folder = Folder(definition, settings, missing)
    return folder.decided(folder.visit_all([statement]))


def empty_attributes(texts: Iterable[str]) -> set[str]:
    """Attributes of modules that are only ever assigned None."""
    values: dict[str, set[str]] = {}
    own = set[str]()
    for text in texts:
        own.update(re.findall(r"self\.(\w+) = None\n", text))
        for name, value in re.findall(r"\b(\w+)(?:: [^=\n]+)? = (.+)", text):
            values.setdefault(name, set()).add(value)
    return {name for name in own if values[name] == {"None"}}
