"""Block diagrams: that they show what is there, legibly, and in its place."""

import re
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
from contrast import contrast

from zoo.analysis.drawing import draw, to_svg, to_svg_beside
from zoo.analysis.drawing.canvas import BADGES
from zoo.analysis.drawing.svg import COLOURS

SVG = "{http://www.w3.org/2000/svg}"
PICTURES = (
    *("attention-is-all-you-need@tiny", "bert-style@tiny", "deepnorm@tiny"),
    *("explicando@tiny+self-attention-stands-bare", "gemma2-style@tiny", "gptj-style@tiny", "normformer@tiny"),
    *("odom-style@tiny+layers-share-weights+heads-share-weights+works-on-features", "t5-style@tiny", "universal@tiny"),
    "vanilla@tiny+dropout-on-the-skip+masks-from-token-ids+torch-initialization",
)


def number(element, key: str) -> float:
    return float(element.get(key))


def texts(element) -> list[str]:
    return [text.text for text in element.iter(f"{SVG}text")]


def boxes(picture) -> list[tuple[float, float, float, float, list[str]]]:
    """Left, top, right, bottom and words of every box of a picture of one stack or more."""
    found = []
    for outer in picture.findall(f"{SVG}g"):
        dx, dy = map(float, re.findall(r"[-\d.]+", outer.get("transform")))
        for group in outer.iter(f"{SVG}g"):
            if group.get("class") == "step":
                box = group.find(f"{SVG}rect")
                left, top = number(box, "x") + dx, number(box, "y") + dy
                found.append((left, top, left + number(box, "width"), top + number(box, "height"), texts(group)))
    return found


def height_of(picture, word: str) -> list[float]:
    """Where the boxes with a word are, the lowest first, with upwards counted as positive."""
    return sorted(-(top + bottom) / 2 for _, top, _, bottom, words in boxes(picture) if word in words)


@pytest.mark.parametrize("name", PICTURES)
def test_every_step_has_a_box_of_its_own_that_holds_its_words(name):
    drawing = draw(name)
    picture = ElementTree.fromstring(to_svg(drawing))
    drawn = boxes(picture)
    shown = " ".join(texts(picture)).replace("- ", "-")
    for step in drawing.steps():
        assert all(word in shown for word in (*step.label.split(), *step.quirks)), step
    assert len(drawn) >= len([step for step in drawing.steps() if step.kind not in ("rule", "inner-position")])
    for left, top, right, bottom, words in drawn:
        assert right - left >= max(len(word) * 10.5 * 0.5 for word in words) and bottom - top >= len(words) * 12
    for one, other in combinations(drawn, 2):
        apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] + 1.5 or other[3] <= one[1] + 1.5
        assert apart, (one, other)
    left, top, width, height = map(float, picture.get("viewBox").split())
    for box in drawn:
        assert left <= box[0] and box[2] <= left + width and top <= box[1] and box[3] <= top + height


def test_norms_are_drawn_at_their_placement():
    """The sum is a circle; below it is the branch, above it what follows."""

    def order(placement: str) -> list[str]:
        picture = ElementTree.fromstring(to_svg(draw(f"pre-norm@tiny:norm_placement={placement},dropout=0.0")))
        sums = sorted(-number(circle, "cy") for circle in picture.iter(f"{SVG}circle") if circle.get("class") == "sum")
        norms, (mlp,) = height_of(picture, "LayerNorm"), height_of(picture, "feed-forward")
        marks = [(mlp, "feed-forward"), (sums[-1], "+"), *((norm, "norm") for norm in norms)]
        low = sums[-2] + (20 if placement in ("post", "deepnorm") else 0)  # the sum before, and its own norm
        return [mark for height, mark in sorted(marks) if height > low + 15]

    assert order("pre")[:3] == ["norm", "feed-forward", "+"] and order("post")[-3:] == ["feed-forward", "+", "norm"]
    assert order("sandwich")[:4] == ["norm", "feed-forward", "norm", "+"]
    assert order("res-post")[:3] == ["feed-forward", "norm", "+"]


def test_parallel_sublayers_are_drawn_side_by_side():
    drawn = boxes(ElementTree.fromstring(to_svg(draw("gptj-style@tiny"))))
    (rotary,) = (box for box in drawn if "positions" in box[4])
    (attention,) = (box for box in drawn if "attention" in box[4])
    (mlp,) = (box for box in drawn if "feed-forward" in box[4])
    assert attention[2] < mlp[0] and rotary[3] == mlp[3]
    assert rotary[1] == pytest.approx(attention[3], abs=1.5)  # positions enter attention


def test_shared_weights_are_linked_and_shared_layers_are_no_pile():
    assert 'class="shared"' in to_svg(draw("vanilla@tiny+cross-attention-reuses-self"))
    assert 'class="shared"' in to_svg(draw("gpt2-style@tiny"))  # the output projection is the embedding
    plain = to_svg(draw("vanilla@tiny"))
    assert 'class="shared"' not in plain and 'class="card"' in plain
    assert "↻ 2×" in to_svg(draw("universal@tiny")) and 'class="card"' not in to_svg(draw("universal@tiny"))


def test_it_is_text_that_can_be_read_without_seeing_it():
    picture = ElementTree.fromstring(to_svg(draw("pre-norm@tiny")))
    named = {element.get("id"): element.text for element in picture if element.get("id")}
    title, description = (named[key] for key in picture.get("aria-labelledby").split())
    assert picture.get("role") == "img" and title == "pre-norm@tiny"
    assert "causal self-attention" in description and "LayerNorm" in description


@pytest.mark.parametrize("paper", [0, 1], ids=["light", "dark"])
def test_letters_have_contrast_to_every_box(paper):
    fills = {name: pair[paper] for key, name, pair in COLOURS if key == "fill"}
    letters = {"text", "soft", "quirk-text", "badge-text", "dot"}
    for name, fill in fills.items():
        if name in ("only", "changed"):
            assert contrast(fills["badge-text"], fill) >= 4.5
        elif name not in letters:
            for letter in ("text", "soft", "quirk-text"):
                assert contrast(fills[letter], fill) >= 4.5, (letter, name)


def test_what_differs_is_marked_by_signs_and_by_words():
    picture = ElementTree.fromstring(to_svg_beside(draw("pre-norm@tiny"), draw("post-norm@tiny")))
    signs = [text for text in texts(picture) if text in BADGES.values()]
    assert signs.count(BADGES["only"]) == 3 + 3 + 1  # two norms and the final one; two and the embeddings'; the legend
    assert signs.count(BADGES["changed"]) == 1
    description = picture.find(f"{SVG}desc").text
    assert "only pre-norm@tiny has LayerNorm" in description
    assert "decoder mlp_residual.norm_out: only post-norm@tiny has LayerNorm" in description


def test_details_quirks_and_repetition_are_compared():
    other = "vanilla@tiny+cross-attention-reuses-self:num_hidden_layers=3"
    description = ElementTree.fromstring(to_svg_beside(draw("vanilla@tiny"), draw(other))).find(f"{SVG}desc").text
    assert "encoder: 2 times in vanilla@tiny, 3 times in" in description
    found = r"cross_attn: cross-attention \(.*\) in vanilla@tiny, .*quirk cross-attention-reuses-self"
    assert re.search(found, description)
    same = ElementTree.fromstring(to_svg_beside(draw("vanilla@tiny"), draw("vanilla@tiny"))).find(f"{SVG}desc").text
    assert same == "They do not differ."


def test_the_picture_of_the_documentation_is_what_the_command_draws():
    stored = Path(__file__).parents[1] / "docs/pictures/post-norm-pre-norm.svg"
    assert stored.read_text(encoding="utf-8") == to_svg_beside(draw("post-norm"), draw("pre-norm"))
