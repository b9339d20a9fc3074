"""A stack as a column, from token ids at the bottom to its output at the top, as papers draw it."""

from __future__ import annotations

from dataclasses import dataclass, field

from .canvas import DETAIL, LEADING, Box, Canvas, Line, Marks, Point, draw_badge, fitted, measure
from .parts import Block, Layer, Residual, Step, Together, roles
from .wording import EVERY_LAYER

WIDTH = 216.0  # How wide a box is
NARROW = 168.0  # Width of each of two boxes side by side
GAP = 17.0  # From one box to the next, with room for an arrowhead
SUM = 10.0  # The radius of the sign of a sum


@dataclass
class Column:
    """Draws one stack, upwards from y = 0, with the residual stream at x = 0."""

    block: Block  # The stack
    side: int = -1  # Where skip connections run: -1 for left of the stream, 1 for right
    marks: Marks = field(default_factory=dict)  # Highlighted steps
    canvas: Canvas = field(default_factory=Canvas)  # The picture
    y: float = 0.0  # Where the stream has come to
    # Every step's box and its middle, by the step's place
    boxes: dict[str, tuple[Box, Point]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.inner = next((step for step in self.block.before if step.kind == "inner-position"), None)
        found = {role for _, role in roles(self.block.items)}
        self.reach = NARROW + 8 if "parallel" in found else WIDTH / 2
        self.lane = self.side * (self.reach + (24 + 60 if "skip" in found else 24))
        self.edge = abs(self.lane) + (64 if "skip" in found else 14)

    def draw(self, start: str) -> None:
        self.canvas.text((0, self.y), start, "soft", size=12)
        self.y -= 14
        for step in self.block.before:
            if step.kind == "position":
                self.added(step)
            elif step.kind != "inner-position":
                self.trunk(step)
        for layer in self.block.layers:
            self.layer(layer)
        for step in self.block.after:
            self.trunk(step)

    def rise(self, distance: float = GAP, *, arrow: bool = True) -> None:
        """Let the stream run on upwards."""
        self.canvas.line((0, self.y), (0, self.y - distance), arrow=arrow)
        self.y -= distance

    def place(self, box: Box, center: Point | None = None) -> None:
        """Draw a box, by default on top of where the stream has come to."""
        center = center or (0.0, self.y - box.height / 2)
        box.draw(self.canvas, center)
        self.boxes[box.step.path] = (box, center)

    def trunk(self, step: Step) -> None:
        """Draw a step that the stream runs through."""
        self.rise()
        if self.inner is not None and step.kind == "attention":
            self.through(self.strip(self.inner, WIDTH))
            self.y += 1
        self.through(measure(step, WIDTH, self.marks))

    def strip(self, step: Step, width: float) -> Box:
        """Measure positions that act inside of attention, drawn as a strip below it."""
        return measure(step, width, self.marks, detail=step.detail.removesuffix(f" {EVERY_LAYER}"))

    def through(self, box: Box) -> None:
        self.place(box)
        self.y -= box.height

    def added(self, step: Step) -> None:
        """Draw positions that are added to the embeddings."""
        box = measure(step, 128, self.marks, detail=step.detail.removeprefix("added to the embeddings").lstrip(", "))
        spare = max(box.height / 2 - SUM - GAP + 10, 0)
        self.rise(GAP + spare)
        self.plus()
        middle, near = self.y + SUM, self.side * 62
        self.place(box, (near + self.side * box.width / 2, middle))
        self.canvas.line((near, middle), (self.side * SUM, middle), arrow=True)
        if spare:
            self.rise(spare, arrow=False)

    def plus(self) -> None:
        middle = self.y - SUM
        self.canvas.circle((0, middle), SUM, "sum")
        self.canvas.line((-5, middle), (5, middle))
        self.canvas.line((0, middle - 5), (0, middle + 5))
        self.y -= 2 * SUM

    def layer(self, layer: Layer) -> None:
        """Draw a layer, in a frame with the number of its applications."""
        remarks = self.remarks(layer)
        self.rise(GAP + 6 + LEADING * len(remarks), arrow=False)
        bottom, mark = self.y, len(self.canvas.parts)
        for item in layer.items:
            if isinstance(item, Residual):
                self.residual(item)
            else:
                self.trunk(item)
        self.rise(14, arrow=False)
        drawn = self.canvas.parts[mark:]
        del self.canvas.parts[mark:]
        self.frame(bottom, layer.repeats, remarks)
        self.canvas.parts += drawn
        self.rise(8, arrow=False)

    def remarks(self, layer: Layer) -> list[Line]:
        """Text below a frame: its layers; below the first, remarks on the stack."""
        room = self.reach + 12
        words = [layer.where, self.block.remark if layer is self.block.layers[0] else ""]
        lines = [Line(text, DETAIL, "soft") for part in filter(None, words) for text in fitted(part, room, DETAIL)]
        for quirk in self.block.quirks:
            lines += [Line(text, DETAIL, "quirk-text bold") for text in fitted(f"⚠ {quirk}", room, DETAIL)]
        return lines

    def frame(self, bottom: float, repeats: int, remarks: list[Line]) -> None:
        """Draw the frame around a layer, as a pile of cards where layers have weights of their own."""
        far, near = self.edge, self.reach + 24
        center = (self.side * (far - near) / 2, (bottom + self.y) / 2)
        size = (far + near, bottom - self.y)
        shared = "one layer" in self.block.remark
        for card in () if shared or repeats == 1 else (10, 5):
            self.canvas.rectangle((center[0] + card, center[1] - card), *size, "card", radius=12)
        self.canvas.rectangle(center, *size, "frame", radius=12)
        left, right = center[0] - size[0] / 2, center[0] + size[0] / 2
        outside = left - 12 if self.side < 0 else right + 22
        anchor = "end" if self.side < 0 else "start"
        times = f"{'↻ ' if shared else ''}{repeats}×"
        self.canvas.text((outside, center[1] + 6), times, "text bold", size=19, anchor=anchor)
        if mark := self.marks.get(f"{self.block.name} repeats", ""):
            draw_badge(self.canvas, (outside + self.side * len(times) * 5.5, center[1] + 22), mark)
        for number, line in enumerate(remarks):
            at = (-self.side * 12, bottom + 15 + LEADING * number)
            self.canvas.text(at, line.text, line.style, size=line.size, anchor="end" if self.side > 0 else "start")

    def residual(self, item: Residual) -> None:
        """Draw a residual connection: the skip leaves the stream, runs next to the branch and joins it in a sum."""
        self.rise(14, arrow=False)
        fork = self.y
        self.canvas.circle((0, fork), 2.6, "dot")
        for part in item.branch:
            if isinstance(part, Together):
                self.together(part)
            else:
                self.trunk(part)
        self.rise()
        self.plus()
        middle = self.y + SUM
        end = (self.side * SUM, middle)
        self.canvas.line((0, fork), (self.lane, fork), (self.lane, middle), end, arrow=True)
        for number, step in enumerate(item.skip):
            box = measure(step, 116, self.marks)
            self.place(box, (self.lane, (fork + middle) / 2 - number * (box.height + 8)))
        for step in item.after:
            self.trunk(step)

    def together(self, item: Together) -> None:
        """Draw two sublayers side by side that read the same input."""
        boxes = [measure(step, NARROW, self.marks) for step in item.steps]
        strip = None if self.inner is None else self.strip(self.inner, NARROW)
        height = max(box.height for box in boxes) + (strip.height if strip else 0)
        self.rise(10, arrow=False)
        self.canvas.circle((0, self.y), 2.6, "dot")
        low, high = self.y, self.y - GAP - 4 - height - GAP - SUM
        places = [(number - (len(boxes) - 1) / 2) * (NARROW + 14) for number in range(len(boxes))]
        for x, box in zip(places, boxes, strict=True):
            self.y = low - GAP - 4
            self.canvas.line((0, low), (x, low), (x, self.y), arrow=True)
            if strip is not None and box.step.kind == "attention":
                self.place(strip, (x, self.y - strip.height / 2))
                self.y -= strip.height - 1
            self.place(box, (x, self.y - box.height / 2))
            self.canvas.line((x, self.y - box.height), (x, high), ((SUM if x > 0 else -SUM), high), arrow=True)
        self.y = high + SUM
        self.plus()
