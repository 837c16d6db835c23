"""Labels beside points, placed so that they cover neither points nor each other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from layerscope.plots.curves import figure_of
from layerscope.plots.style import SMALL, tag

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import NDArray

_RADII = (7.0, 10.0, 14.0, 19.0, 25.0, 32.0)  # points; the near ones are tried first
_ANGLES = np.arange(16) * (np.pi / 8)
_MARKER = 5.0  # points, side of the square that a marker fills
_LEADER_FROM = 9.0  # points, from where on a line leads from the label to its point


@dataclass(frozen=True)
class PointLabel:
    """The text that belongs to the point (x, y), in the data's units."""

    x: float
    y: float
    text: str
    colour: str


def place_labels(panels: Sequence[tuple[Axes, Sequence[PointLabel]]]) -> None:
    """Write the labels of each of ``panels``, all of one figure, at the best free places around their points.

    The limits of the axes must be final. Greedy: the place that covers least, the nearest first.
    """
    labelled = [(ax, labels) for ax, labels in panels if labels]
    if not labelled:
        return
    figure_of(labelled[0][0]).draw_without_rendering()  # settles the layout, and with it where points are
    for ax, labels in labelled:
        _place(ax, labels)


def _place(ax: Axes, labels: Sequence[PointLabel]) -> None:
    scale = 72 / figure_of(ax).dpi
    centres = ax.transData.transform([(label.x, label.y) for label in labels]) * scale
    frame = np.asarray(ax.get_window_extent().extents) * scale
    taken = _boxes(centres, np.full((len(labels), 2), _MARKER))
    for label, centre in zip(labels, centres, strict=True):
        size = np.array([0.62 * SMALL * len(label.text) + 1.5, SMALL + 0.5])
        offset = _best_offset(centre, size, taken, frame)
        taken = np.vstack([taken, _boxes((centre + offset)[None], size[None])])
        _write(ax, label, offset)


def _boxes(centres: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Boxes as rows of (left, bottom, right, top)."""
    return np.hstack([centres - sizes / 2, centres + sizes / 2])


def _best_offset(
    centre: NDArray[np.float64],
    size: NDArray[np.float64],
    taken: NDArray[np.float64],
    frame: NDArray[np.float64],
) -> NDArray[np.float64]:
    """The offset at which a box of ``size`` covers least of what is taken."""
    radii, angles = (grid.ravel() for grid in np.meshgrid(_RADII, _ANGLES, indexing="ij"))
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    # A wide text must move further sideways than upwards to clear its point.
    offsets = directions * (radii[:, None] + np.array([max(size[0] / 2 - 4, 0), 0]))
    boxes = _boxes(centre + offsets, np.broadcast_to(size, offsets.shape))
    outside = np.maximum(frame[:2] - boxes[:, :2], 0).sum(1) + np.maximum(boxes[:, 2:] - frame[2:], 0).sum(1)
    cost = _overlap(boxes, taken) + 0.35 * radii + 20 * outside
    return np.asarray(offsets[int(np.argmin(cost))])


def _overlap(boxes: NDArray[np.float64], taken: NDArray[np.float64]) -> NDArray[np.float64]:
    """Area of each box that others have taken."""
    left_bottom = np.maximum(boxes[:, None, :2], taken[None, :, :2])
    right_top = np.minimum(boxes[:, None, 2:], taken[None, :, 2:])
    return np.asarray(np.clip(right_top - left_bottom, 0, None).prod(axis=2).sum(axis=1))


def _write(ax: Axes, label: PointLabel, offset: NDArray[np.float64]) -> None:
    far = float(np.hypot(*offset)) > _LEADER_FROM + 3
    leader = {"arrowstyle": "-", "linewidth": 0.5, "color": label.colour, "shrinkA": 0, "shrinkB": 2}
    text = ax.annotate(
        label.text, (label.x, label.y), xytext=(float(offset[0]), float(offset[1])),
        textcoords="offset points", ha="center", va="center", fontsize=SMALL, color="0.15",
        arrowprops=leader if far else None, gid=tag(ax, "label"),
    )  # fmt: skip
    text.set_in_layout(False)
