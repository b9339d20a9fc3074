"""The plain code of one model: what its settings leave of the plain code of all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import libcst as cst
from libcst import matchers as m

from ..syntax.folding import UNKNOWN
from ..syntax.reading import Substitution, assigned, code, is_docstring, names
from ..syntax.walking import Visitor, changed, nodes_of
from .folding import PRESENT, Folder, Joiner, cleaned, evaluate, inlined, is_literal, joined, read_attributes, simple
from .plugins import no_plain_form
from .program import bound, functions, methods, parameters, sources, values_of

Key = tuple[str, str]  # A function: the name of its class, or its own; and its own


class Program:
    """Definitions, plugins' too, and what is known of them; `given` are known values for the forward of `entry`."""

    def __init__(
        self,
        config: SimpleNamespace,
        entry: list[str],
        given: Mapping[str, Any],
        definitions: Mapping[str, cst.CSTNode],
    ) -> None:
        self.config, self.entry, self.given = config, entry, given
        self.definitions = dict(definitions)
        self.params: dict[tuple[str, str, str], Any] = {}
        self.always: set[tuple[str, str, str]] = set()
        self.known: dict[Any, dict[str, Any]] = {}  # of classes and functions, as long as definitions stay the same

    def specialised(self) -> dict[str, cst.CSTNode]:
        """Fold until nothing changes; definitions in the order of use."""
        before = ""
        while before != (now := "".join(code(node) for node in self.definitions.values())):
            before = now
            self.definitions = {name: self.definitions[name] for name in self.in_order()}
            self.propagate()
            self.read_settings()
            self.rewrite(self.fold)
            self.rewrite(self.inline)
            self.definitions = {name: inlined(node) for name, node in self.definitions.items()}
            self.remove_methods()
            self.remove_parameters()
            read = read_attributes(self.definitions, self.entry[0])
            self.rewrite(lambda key, node: cleaned(node, read[key[0]]))  # noqa: B023
        self.refuse_missing()
        return {name: Joiner().visit(node) for name, node in self.definitions.items()}

    def in_order(self) -> list[str]:
        """Names of definitions, each after those that it uses, as a forward comes to them."""
        done: dict[str, None] = {}

        def visit(name: str, above: tuple[str, ...] = ()) -> None:
            if name in done or name in above:
                return
            node = self.definitions[name]
            variables = {
                one
                for function in methods(node).values()
                for one in (*parameters(function), *names(function.body).written)
            }
            for other in names(node).read:
                if other in self.definitions and other != name and other not in variables:
                    visit(other, (*above, name))
            done[name] = None

        for name in self.entry:
            visit(name)
        return list(done)

    def rewrite(self, change: Any) -> None:
        self.known = {}
        done: dict[str, cst.CSTNode] = {}
        for name, node in self.definitions.items():
            if isinstance(node, cst.FunctionDef):
                done[name] = change((name, name), node)
            elif isinstance(node, cst.ClassDef):
                body = [
                    change((name, one.name.value), one) if isinstance(one, cst.FunctionDef) else one
                    for one in node.body.body
                ]
                done[name] = changed(node, body=changed(node.body, body=body))
            else:
                done[name] = node
        self.definitions, self.known = done, {}

    def values(self, key: Key, node: cst.FunctionDef) -> dict[str, Any]:
        """Known values by name inside a function."""
        if key in self.known:
            return self.known[key]
        view = SimpleNamespace(config=self.config, **self.attributes(key[0]))
        known: dict[str, Any] = {"config": self.config, "self": view, "model": SimpleNamespace(config=self.config)}
        written, params = names(node.body).written, parameters(node)
        known |= {name: self.params.get((*key, name), UNKNOWN) for name in params if name not in (*known, *written)}
        for name, assign in assigned(node.body).items():
            if written.count(name) == 1 and name not in params:
                known[name] = UNKNOWN if self.may_be_none(assign.value) else simple(evaluate(assign.value, known))
        self.known[key] = known
        return known

    def may_be_none(self, value: cst.BaseExpression) -> bool:
        """Whether an expression calls a plain function that declares to return anything."""
        found = self.definitions.get(code(value.func)) if isinstance(value, cst.Call) else None
        returns = found.returns if isinstance(found, cst.FunctionDef) else None
        return returns is not None and code(returns.annotation) == "Any"

    def attributes(self, owner: str) -> dict[str, Any]:
        """Attributes of a class that are words, switches or None."""
        if owner in self.known:
            return self.known[owner]
        init = methods(self.definitions[owner]).get("__init__")
        if init is None:
            return {}
        known = {name: self.params.get((owner, "__init__", name), UNKNOWN) for name in parameters(init)}
        known["config"] = self.config
        given = {code(one.targets[0].target): evaluate(one.value, known) for one in names(init).assigns}
        self.known[owner] = {
            name.removeprefix("self."): value
            for name, value in given.items()
            if name.startswith("self.") and is_literal(value)
        }
        return self.known[owner]

    def fold(self, key: Key, node: cst.FunctionDef) -> cst.FunctionDef:
        return changed(node, body=Folder(self.values(key, node)).visit(node.body))

    def candidates(self, key: Key, node: cst.FunctionDef, function: cst.BaseExpression) -> list[Key]:
        """The functions that a called expression may be."""
        if isinstance(function, cst.Name):
            name = function.value
            if name == "self":
                return [(key[0], "forward")]
            if name in ("model", "Model"):
                return [(self.entry[0], "forward" if name == "model" else "__init__")]
            if name in self.definitions:
                return [(name, name if isinstance(self.definitions[name], cst.FunctionDef) else "__init__")]
            attributes = sorted(sources(node.body, name))
            return [(one, "forward") for attribute in attributes for one in self.owned(key[0], attribute)]
        if not isinstance(function, cst.Attribute):
            return []
        name, value = function.attr.value, function.value
        owners = [key[0]] if m.matches(value, m.Name("self")) else []
        if isinstance(value, cst.Attribute) and m.matches(value.value, m.Name("self")):
            owners = self.owned(key[0], value.attr.value)
        found: list[Key] = []
        for owner in owners:
            is_method = name in methods(self.definitions[owner])
            found += [(owner, name)] if is_method else [(one, "forward") for one in self.owned(owner, name)]
        return found

    def owned(self, owner: str, attribute: str) -> list[str]:
        """Plain classes that an attribute of a class may be an instance of."""
        found: list[str] = []
        for method in methods(self.definitions[owner]).values():
            for assign in names(method).assigns:
                if code(assign.targets[0].target) != f"self.{attribute}":
                    continue
                called = [code(call.func) for call in names(assign.value).calls]
                found += [name for name in called if isinstance(self.definitions.get(name), cst.ClassDef)]
        return list(dict.fromkeys(found))

    def calls(self) -> Iterator[tuple[Key, cst.FunctionDef, cst.Call, dict[Key, dict[str, cst.Arg]]]]:
        """Every call of a plain function: where it is, and what it may call with which arguments by name."""
        for owner, name, node in functions(self.definitions):
            for call in names(node.body).calls:
                candidates = self.candidates((owner, name), node, call.func)
                found = {one: given for one in candidates if (given := self.arguments(one, call)) is not None}
                if found:
                    yield (owner, name), node, call, found

    def arguments(self, key: Key, call: cst.Call) -> dict[str, cst.Arg] | None:
        """Arguments of a call by the names of a function's parameters, None if it cannot be called so."""
        function = methods(self.definitions[key[0]]).get(key[1])
        if function is None:
            return None
        params, given = parameters(function), bound(function, call)
        required = {name for name, default in params.items() if default is None}
        fits = len(given) == len(call.args) and required <= given.keys() <= params.keys()
        return given if fits else None

    def propagate(self) -> None:
        """Find what parameters are at every call."""
        self.known = {}
        seen: dict[tuple[str, str, str], list[Any]] = {}
        omitted: set[tuple[str, str, str]] = set()
        for key, node, _, found in self.calls():
            known = self.values(key, node)
            for one, given in found.items():
                for name, default in parameters(methods(self.definitions[one[0]])[one[1]]).items():
                    if name == "config":
                        continue
                    arg = given.get(name)
                    if arg is None:
                        omitted.add((*one, name))
                    value = evaluate(arg.value if arg is not None else default, known)  # type: ignore[arg-type]
                    value = UNKNOWN if arg is not None and self.may_be_none(arg.value) else value
                    seen.setdefault((*one, name), []).append(simple(value))
        forward = methods(self.definitions[self.entry[0]])["forward"]
        for name, default in parameters(forward).items():
            outside = self.given.get(name, PRESENT if default is None else UNKNOWN)
            seen.setdefault((self.entry[0], "forward", name), []).append(outside)
        self.params = {place: joined(values) for place, values in seen.items()}
        self.always = seen.keys() - omitted

    def read_settings(self) -> None:
        """Read a setting where every call gives it for a parameter."""
        given: dict[tuple[str, str, str], set[str]] = {}
        for _, _, _, found in self.calls():
            for one, arguments in found.items():
                args = {name: code(arg.value) for name, arg in arguments.items()}
                for name in parameters(methods(self.definitions[one[0]])[one[1]]):
                    owner, dot, setting = args.get(name, "").rpartition(".")
                    is_setting = dot and owner == args.get("config") and setting.isidentifier()
                    given.setdefault((*one, name), set()).add(setting if is_setting else "")

        def change(key: Key, node: cst.FunctionDef) -> cst.FunctionDef:
            written = names(node.body).written
            values: dict[str, Any] = {}
            for name in parameters(node):
                settings = given.get((*key, name), {""})
                if len(settings) == 1 and "" not in settings and name not in written:
                    values[name] = cst.parse_expression(f"config.{min(settings)}")
            return node.with_changes(body=Substitution(values).visit(node.body)) if values else node

        self.rewrite(change)

    def inline(self, key: Key, node: cst.FunctionDef) -> cst.FunctionDef:
        """Put the one expression that a function returns in the place of its calls."""
        called = (self.definitions.get(code(call.func)) for call in names(node.body).calls)
        if not any(isinstance(one, cst.FunctionDef) for one in called):
            return node
        program, known = self, self.values(key, node)

        class Inliner(Visitor):
            def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:
                found = program.definitions.get(code(original_node.func))
                if not isinstance(found, cst.FunctionDef) or found.name.value in program.entry:
                    return updated_node
                expression = program.returned(found, original_node, known)
                if expression is None:
                    return updated_node
                given = values_of(found, updated_node)
                read = names(expression).read
                if any(read.count(name) > 1 and names(given[name]).calls for name in given):
                    return updated_node
                return Substitution(given).visit(expression)

        return changed(node, body=Inliner().visit(node.body))

    def returned(self, found: cst.FunctionDef, call: cst.Call, known: Mapping[str, Any]) -> cst.BaseExpression | None:
        """The one expression of a function that a call's arguments leave, if they leave one."""
        given = values_of(found, call)
        values = {name: simple(evaluate(value, known)) for name, value in given.items()} | {"config": self.config}
        statements: Any = [one for one in Folder(values).visit(found.body).body if not is_docstring(one)]
        returns = m.SimpleStatementLine([m.Return() | m.Expr()], leading_lines=[])
        return statements[0].body[0].value if len(statements) == 1 and m.matches(statements[0], returns) else None

    def remove_methods(self) -> None:
        read = {one.attr.value for node in self.definitions.values() for one in names(node).attributes}
        for name, node in self.definitions.items():
            unused = methods(node).keys() - read - {name, "__init__", "_apply", "forward", "generate"}
            if unused and isinstance(node, cst.ClassDef):
                left_out = [method for key, method in methods(node).items() if key in unused]
                body = [one for one in node.body.body if one not in left_out]
                self.definitions[name] = node.with_changes(body=node.body.with_changes(body=body))

    def remove_parameters(self) -> None:
        """Drop parameters that are constant or that nothing reads, and what is given for them."""
        removable: set[tuple[str, str, str]] = set()
        for owner, name, node in functions(self.definitions):
            body = names(node.body)
            for param in parameters(node):
                known = (owner, name, param) in self.params or (param == "config" and owner not in self.entry)
                is_input = (owner, name) == (self.entry[0], "forward") and param not in self.given
                if known and not is_input and param not in (*body.read, *body.written):
                    removable.add((owner, name, param))
        feeds = []  # Arguments, the parameters that each is given for, and how many functions its call may be of
        for key, _, call, found in self.calls():
            for arg in call.args:
                fed = {(*one, name) for one, given in found.items() for name in given if given[name] is arg}
                feeds.append(((key, id(arg)), fed, len(found)))
        before: set[tuple[str, str, str]] = set()
        while removable != before:
            before = removable
            removable = before.difference(*(fed for _, fed, most in feeds if not fed <= before or len(fed) < most))
        dropped = {place for place, fed, _ in feeds if fed & removable}

        class Remover(Visitor):
            def __init__(self, key: Key) -> None:
                self.key = key

            def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
                pairs = zip(original_node.args, updated_node.args, strict=True)
                kept = [updated for arg, updated in pairs if (self.key, id(arg)) not in dropped]
                if len(kept) == len(updated_node.args):
                    return updated_node
                space = cst.SimpleWhitespace("")
                kept = [arg.with_changes(comma=cst.MaybeSentinel.DEFAULT, whitespace_after_arg=space) for arg in kept]
                return updated_node.with_changes(args=kept, whitespace_before_args=space)

        def change(key: Key, node: cst.FunctionDef) -> cst.FunctionDef:
            node = changed(node, body=Remover(key).visit(node.body))
            params: list[cst.Param] = []
            for one in node.params.params:
                if (*key, one.name.value) not in removable:
                    last = params[-1].default if params else None
                    params.append(one if last is not None else self.required(key, one))
            if params:
                params[-1] = changed(params[-1], comma=cst.MaybeSentinel.DEFAULT)
            return changed(node, params=changed(node.params, params=params))

        self.rewrite(change)

    def required(self, key: Key, param: cst.Param) -> cst.Param:
        """A parameter without its default where each call gives a value."""
        place = (*key, param.name.value)
        if place not in self.always or key[0] in self.entry or param.annotation is None:
            return param
        annotation = param.annotation
        if self.params.get(place) is PRESENT and code(annotation.annotation).endswith(" | None"):
            text = code(annotation.annotation).removesuffix(" | None")
            annotation = annotation.with_changes(annotation=cst.parse_expression(text))
        return param.with_changes(default=None, equal=cst.MaybeSentinel.DEFAULT, annotation=annotation)

    def refuse_missing(self) -> None:
        """Refuse settings without a plain form in the code that is left."""
        for one in (one for node in self.definitions.values() for one in nodes_of(node, cst.Raise)):
            if m.matches(one.exc, m.Call(m.Name("NoPlainForm"))):
                (text,) = nodes_of(one, cst.SimpleString)
                raise no_plain_form(text.evaluated_value, getattr(self.config, text.evaluated_value, None))
