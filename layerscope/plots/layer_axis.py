"""Where each layer stands on an axis, and how the axis names it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from layerscope.plots.style import tag

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

LAYER_LABEL = "layer (k = block.k)"
_DEPTH_LABEL = "depth (share of blocks run)"
_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
_CROWDED = 0.085  # share of the axis below which two tick labels touch at column width
_CROWDED_NARROW = 0.14  # the same in a panel of a grid
MANY = 10  # cells of a heat map above which not all layers are named
_FEW_BLOCKS = 12  # of a model whose layers a narrow panel can name


@dataclass(frozen=True)
class LayerAxis:
    """Positions of layers: ``embed`` at 0, ``block.k`` at k, the final norm apart from the last block.

    Attributes:
        n_blocks: the deepest layer that is shown.
        has_norm: whether ``norm`` is shown.
        by: ``layer`` counts blocks, ``depth`` is their share, so that models of any depth agree.
        narrow: whether the axes are a panel of a grid, with room for fewer labels.
    """

    n_blocks: int
    has_norm: bool
    by: Literal["layer", "depth"] = "layer"
    narrow: bool = False

    @classmethod
    def of(cls, frame: pd.DataFrame, by: Literal["layer", "depth"] = "layer") -> LayerAxis:
        """The axis that holds every layer of ``frame``."""
        return cls(int(frame["layer"].max()), bool((frame["layer_name"] == "norm").any()), by)

    @classmethod
    def of_grid(cls, frame: pd.DataFrame) -> LayerAxis:
        """The axis of small multiples: layers by name where models of one depth have few, else depth."""
        run = frame[frame["depth"] > 0]
        blocks = {round(ratio) for ratio in run["layer"] / run["depth"]}
        named = len(blocks) == 1 and max(blocks) <= _FEW_BLOCKS
        return replace(cls.of(frame, "layer" if named else "depth"), narrow=True)

    @property
    def end(self) -> float:
        """Position of the last block."""
        return float(self.n_blocks) if self.by == "layer" else 1.0

    @property
    def norm_position(self) -> float:
        """Position of ``norm``: clearly more than one block behind the last block."""
        return self.end + (max(1.5, 0.06 * self.n_blocks) if self.by == "layer" else 0.2)

    def positions(self, rows: pd.DataFrame) -> list[float]:
        """Position of each row of ``rows``."""
        places = zip(rows["layer_name"], rows[self.by], strict=True)
        return [self.norm_position if name == "norm" else float(place) for name, place in places]

    def ticks(self) -> tuple[list[float], list[str]]:
        """Positions and labels of the ticks, thinned so that none touch.

        >>> LayerAxis(32, has_norm=True).ticks()[1]
        ['embed', '5', '10', '15', '20', '25', '30', 'norm']
        """
        numbers = range(0, self.n_blocks + 1, tick_step(self.n_blocks, most=6 if self.narrow else 8))
        places = [float(k) for k in numbers] if self.by == "layer" else [0.0, 0.5, 1.0]
        labels = [block_label(k) for k in numbers] if self.by == "layer" else ["0", "0.5", "1"]
        if not self.has_norm:
            return places, labels
        crowded = _CROWDED_NARROW if self.narrow and self.by == "layer" else _CROWDED
        if len(places) > 1 and self.norm_position - places[-1] < crowded * self.norm_position:
            places, labels = places[:-1], labels[:-1]
        return [*places, self.norm_position], [*labels, "norm"]

    def apply(self, ax: Axes) -> None:
        """Label the x axis of ``ax`` and set the final norm apart."""
        places, labels = self.ticks()
        ax.set_xticks(places, labels)
        ax.set_xlabel(LAYER_LABEL if self.by == "layer" else _DEPTH_LABEL)
        if self.has_norm:
            middle = (self.end + self.norm_position) / 2
            ax.axvline(middle, color="0.6", linewidth=0.7, linestyle=(0, (1, 2)), gid=tag(ax, "gap"))


def tick_step(n_blocks: int, most: int = 8) -> int:
    """Every how many blocks a tick has a label, so that at most ``most`` blocks have one.

    >>> [tick_step(blocks) for blocks in (6, 12, 32, 80)]
    [1, 2, 5, 10]
    """
    return next(step for step in _STEPS if n_blocks <= most * step)


def block_label(k: int) -> str:
    """The tick label of the layer at which ``k`` blocks have run."""
    return "embed" if k == 0 else str(k)


def layer_ticks(layers: list[str]) -> tuple[list[int], list[str]]:
    """Which layers are named, and how.

    >>> layer_ticks(["embed", "block.1", "normed.1", "norm"])
    ([0, 1, 2, 3], ['embed', '1', 'n1', 'norm'])
    """
    step = tick_step(len(layers) - 1) if len(layers) > MANY else 1
    free = len(layers) - 0.6 * step if layers[-1] == "norm" else len(layers)  # of the name of the norm
    shown = [
        place for place, name in enumerate(layers) if name == "norm" or (place % step == 0 and place < free)
    ]
    return shown, [_short(layers[place]) for place in shown]


def _short(layer_name: str) -> str:
    site, _, k = layer_name.partition(".")
    return {"block": k, "normed": f"n{k}"}.get(site, layer_name)
