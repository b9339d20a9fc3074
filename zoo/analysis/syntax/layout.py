"""Source in fewer lines: descriptions at the ends of definitions, parameters and brackets in full lines."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator

WIDTH = 120  # Longest line
LEFT_OUT = "\0"  # Text of a line that is left out
NEEDED = r"Shape|batch_size|\d{4}"  # Parts of descriptions that are never left out


def compacted(text: str) -> str:
    """Source in fewer lines, with every statement."""
    for change in (with_full_signatures, with_closed_brackets, with_descriptions_at_ends, without_usual_descriptions):
        text = change(text)
    return re.sub(r"\n\n\n+", "\n\n", text)


def with_descriptions_at_ends(text: str) -> str:
    """Docstrings of one line as comments at the ends of what they describe, where there is room."""
    lines = text.split("\n")
    for place, _, one in descriptions(text):
        above, words = lines[one.lineno - 2], ast.literal_eval(lines[one.lineno - 1].strip())
        if place == 0 and not lines[one.lineno]:
            lines[one.lineno] = LEFT_OUT
        if "#" not in above and len(above) + len(words) + 4 <= WIDTH:
            lines[one.lineno - 2], lines[one.lineno - 1] = f"{above}  # {words}", LEFT_OUT
    return "\n".join(line for line in lines if line != LEFT_OUT)


def without_usual_descriptions(text: str) -> str:
    """Source without docstrings of one line of functions and constants that name no shape and no paper."""
    lines = text.split("\n")
    for place, owner, one in descriptions(text):
        is_class = place == 0 and isinstance(owner, ast.ClassDef)
        if not is_class and not re.search(NEEDED, lines[one.lineno - 1]):
            lines[one.lineno - 1] = LEFT_OUT
    return "\n".join(line for line in lines if line != LEFT_OUT)


def descriptions(text: str) -> Iterator[tuple[int, ast.AST, ast.stmt]]:
    """Docstrings of one line below that of a file: each with its place in the body of its owner."""
    for node in statements(ast.parse(text)):
        body = list(node.body) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) else []
        for place, one in enumerate(body[: len(body) if len(body) > 1 else 0]):
            is_string = isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant)
            if is_string and one.lineno == one.end_lineno and not (place == 0 and isinstance(node, ast.Module)):
                yield place, node, one


def statements(tree: ast.AST) -> Iterator[ast.AST]:
    """A tree and the statements in it, without walking expressions."""
    yield tree
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from statements(child)


def with_full_signatures(text: str) -> str:
    """Parameters on as few lines as they need, under each other."""
    lines = text.split("\n")
    for node in statements(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef):
            continue
        first = node.lineno - 1
        last = next(place for place in range(first, len(lines)) if re.search(r":( *#.*)?$", lines[place]))
        if first == last or any("#" in line for line in lines[first : last + 1]):
            continue
        start, rest = lines[first], " ".join(line.strip() for line in lines[first + 1 : last + 1])
        given, end = re.findall(r"^(.*?),? ?(\)(?: -> [^()]*)?:)$", rest)[0]
        units = re.split(r"(?<=,) (?![^\[(]*[\])])", given)
        units[-1] += end
        written = wrapped(units, start, " " * len(start))
        if max(map(len, written)) <= WIDTH and len(written) <= last - first:
            lines[first : last + 1] = written + [LEFT_OUT] * (last - first + 1 - len(written))
    return "\n".join(line for line in lines if line != LEFT_OUT)


def wrapped(units: Iterable[str], indent: str, further: str | None = None) -> list[str]:
    """Lines of whole units, as full as they can be; `further` is the indent after the first line if it is another."""
    text = " ".join(unit.replace(" ", LEFT_OUT) for unit in units)
    further = indent if further is None else further
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent=further, break_long_words=False, break_on_hyphens=False
    )
    return [line.replace(LEFT_OUT, " ") for line in lines]


def with_closed_brackets(text: str) -> str:
    """Closing brackets at the end of the line before them, where there is room."""
    kept: list[str] = []
    for line in text.split("\n"):
        closes = re.fullmatch(r" *([)\]}]+(?: from \w+|:|,)?)", line)
        above = kept[-1] if kept else ""
        if closes and "#" not in above and above.strip() and not above.endswith(('"""', "(", "[", "{")):
            inner = above.removesuffix(",") if is_no_tuple(kept, line) else above
            if len(inner) + len(closes[1]) <= WIDTH:
                kept[-1] = inner + closes[1]
                continue
        kept.append(line)
    return "\n".join(kept)


def is_no_tuple(lines: list[str], closing: str) -> bool:
    """Whether the bracket that a line closes is a list, a dictionary, or that of a call."""
    indent = len(closing) - len(closing.lstrip())
    opening = next(line for line in reversed(lines) if line.strip() and len(line) - len(line.lstrip()) == indent)
    return bool(re.search(r"(\w\(|import \(|[\[{])$", opening))


def with_full_lines(text: str) -> str:
    """Source with arguments that have a line each in full lines."""

    def fill(found: re.Match[str]) -> str:
        indent, opened, arguments, closed = found.groups()
        units = [line.strip() for line in arguments.strip().split("\n")]
        single = f"{indent}{opened}{' '.join(units).rstrip(',')}{closed}"
        if len(single) <= WIDTH:
            return single
        return "\n".join([f"{indent}{opened}", *wrapped(units, f"{indent}    "), f"{indent}{closed}"])

    pattern = r"^( *)([^\n#]*[({[])\n((?:\1    [^\s#)][^\n#]*,\n){3,})\1([)}\]][^\n]*)$"
    return re.sub(pattern, fill, text, flags=re.MULTILINE)


def with_comments_at_ends(text: str) -> str:
    """Comments of one line at the end of the line that they are about, where there is room."""
    kept: list[str] = []
    for line in text.splitlines():
        above = kept[-1] if kept else ""
        is_comment = above.lstrip().startswith("#") and not line.lstrip().startswith("#")
        several = len(kept) > 1 and kept[-2].lstrip().startswith("#")
        if is_comment and not several and not line.endswith("(") and len(line) + 2 + len(above.lstrip()) <= WIDTH:
            kept[-1] = f"{line}  {above.lstrip()}"
        else:
            kept.append(line)
    return "\n".join(kept)


def broken(line: str) -> str:
    """A line that is too long, broken after a comma of its outermost brackets."""
    if len(line) <= WIDTH:
        return line
    opened: list[int] = []
    places = []
    for place, sign in enumerate(line):
        if sign in "([{":
            opened.append(place)
        elif sign in ")]}" and opened:
            opened.pop()
        elif sign == "," and opened and place < WIDTH:
            places.append((-len(opened), place + 1, opened[-1] + 1))
    if not places:
        return line
    _, end, column = max(places)
    return f"{line[:end]}\n{broken(' ' * column + line[end:].lstrip())}"
