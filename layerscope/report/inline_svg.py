"""Figures as elements of the page: ids of their own, colours that follow the page, values to point at."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from markupsafe import Markup

from layerscope.plots import figure_svg
from layerscope.report.readings import Reading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOUR = re.compile(r"#[0-9a-f]{6}\b")
_REFERENCE = re.compile(r"url\(#([^)]*)\)")
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in comments, from names
_DOT = 3.2  # points, the radius of a marked value


@dataclass
class Inliner:
    """Makes the figures of one page, which share the outlines of their letters.

    Attributes:
        glyphs: outline of each letter that a figure refers to, by id.
    """

    glyphs: dict[str, str] = field(default_factory=dict)
    _count: int = 0

    def inline(
        self, figure: Figure, alt: str, readings: Sequence[Reading] = (), ax: Axes | None = None
    ) -> Markup:
        """``figure`` as an ``svg`` element.

        Args:
            figure: what to show.
            alt: its description.
            readings: what can be read off it.
            ax: the axes that they are in the units of.
        """
        self._count += 1
        root = ElementTree.fromstring(_NOT_XML.sub("", figure_svg(figure)))
        _drop_namespaces(root)
        self._take_glyphs(root)
        _rename_ids(root, f"f{self._count}-", self.glyphs)
        _follow_colours(root)
        size = " ".join(root.get("viewBox", "").split()[2:])
        root.attrib = {"viewBox": f"0 0 {size}", "class": "drawing", "role": "img", "aria-label": alt}
        if ax is not None:
            root.append(_reading_layer(figure, ax, readings))
        return Markup(ElementTree.tostring(root, encoding="unicode"))

    def shared(self) -> Markup:
        """What the figures refer to: to stand once in the page, before them."""
        paths = "".join(self.glyphs.values())
        return Markup(f'<svg class="glyphs" aria-hidden="true"><defs>{paths}</defs></svg>')

    def _take_glyphs(self, root: ElementTree.Element) -> None:
        for parent in root.iter("defs"):
            for path in parent.findall("path"):
                name = path.get("id", "")
                if name.startswith("DejaVuSans"):
                    path.tail = None
                    self.glyphs.setdefault(name, ElementTree.tostring(path, encoding="unicode"))
                    parent.remove(path)


def _drop_namespaces(root: ElementTree.Element) -> None:
    """Names as HTML knows them; the page has no use for metadata, and its own style sheet."""
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.attrib = {name.rpartition("}")[2]: value for name, value in element.attrib.items()}
        element.text = element.tail = None
    for metadata in root.findall("metadata"):
        root.remove(metadata)
    for defs in root.findall("defs"):
        for style in defs.findall("style"):
            defs.remove(style)


def _rename_ids(root: ElementTree.Element, prefix: str, shared: Iterable[str]) -> None:
    """Ids that no other figure has, in places where they are given and where they are referred to."""
    kept = set(shared)
    for element in root.iter():
        for name, value in element.attrib.items():
            if name == "id":
                element.set(name, prefix + value)
            elif name == "href" and value.startswith("#") and value[1:] not in kept:
                element.set(name, f"#{prefix}{value[1:]}")
            elif "url(#" in value:
                element.set(name, _REFERENCE.sub(rf"url(#{prefix}\1)", value))


def _follow_colours(element: ElementTree.Element) -> None:
    """Every colour as one that the style sheet may replace; numbers printed on coloured cells keep theirs."""
    style = element.get("style", "")
    if "cell:" in element.get("id", ""):
        element.set("class", "on-colour")
        return
    if style:
        element.set("style", _COLOUR.sub(lambda found: f"var(--{found[0][1:]}, {found[0]})", style))
    for child in element:
        _follow_colours(child)


def _reading_layer(figure: Figure, ax: Axes, readings: Sequence[Reading]) -> ElementTree.Element:
    """What can be pointed at, above the drawing: one group a layer, with a title for those without script."""
    layer = ElementTree.Element("g", {"class": "readings"})
    left, right, top, bottom = _box(figure, ax)
    places = [_places(figure, ax, reading) for reading in readings]
    guides = [points[0][0] for points in places]
    edges = [left, *((one + other) / 2 for one, other in itertools.pairwise(guides)), right]
    for number, (reading, points) in enumerate(zip(readings, places, strict=True)):
        group = ElementTree.SubElement(layer, "g", {"class": "reading"})
        ElementTree.SubElement(group, "title").text = reading.text
        if reading.upright:
            width = edges[number + 1] - edges[number]
            _add(group, "rect", x=edges[number], y=top, width=width, height=bottom - top)
            _add(group, "line", x1=guides[number], x2=guides[number], y1=top, y2=bottom)
        else:
            _add(group, "circle", "near", cx=points[0][0], cy=points[0][1], r=7)
        for x, y in points:
            if math.isfinite(y):
                _add(group, "circle", cx=x, cy=y, r=_DOT)
    return layer


def _box(figure: Figure, ax: Axes) -> tuple[float, float, float, float]:
    """The sides of the axes in points from the top left of the figure: left, right, top, bottom."""
    box, scale, height = ax.get_window_extent(), 72 / figure.dpi, float(figure.get_figheight()) * 72
    return box.x0 * scale, box.x1 * scale, height - box.y1 * scale, height - box.y0 * scale


def _places(figure: Figure, ax: Axes, reading: Reading) -> list[tuple[float, float]]:
    """The points of a reading, points from the top left of the figure; without a value, ``x`` alone."""
    scale, height = 72 / figure.dpi, float(figure.get_figheight()) * 72
    foot = ax.get_ylim()[0]
    return [
        (
            float(ax.transData.transform((x, foot))[0]) * scale,
            height - float(ax.transData.transform((x, y))[1]) * scale,
        )
        for x, y in reading.points
    ]


def _add(parent: ElementTree.Element, tag: str, kind: str = "", **numbers: float) -> None:
    attributes = {name: f"{value:.2f}" for name, value in numbers.items()}
    ElementTree.SubElement(parent, tag, attributes | ({"class": kind} if kind else {}))
