"""The house style: readable at column width, in grey and with colour-blind eyes."""

from __future__ import annotations

import contextlib
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN_WIDTH = 3.4  # inches, one column of a two-column page
PAGE_WIDTH = 7.1  # inches, both columns
_LETTER, _HANDLE = 0.058, 0.7  # inches, of a letter in a legend and of the sample line beside it
SMALL = 7  # points, the smallest text of any figure
INK = "0.25"
# The order of marks in a legend, after the lines.
_MARKS = {"baseline": 1, "pick": 2, "letter.key": 3, "embed": 4, "missing": 5}

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib: the same figure on every machine
    "font.size": 8,
    "axes.labelsize": 8,
    "axes.titlesize": 8,
    "xtick.labelsize": SMALL,
    "ytick.labelsize": SMALL,
    "legend.fontsize": SMALL,
    "legend.frameon": False,
    "legend.handlelength": 3.4,  # long enough to tell the line styles apart
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "0.5",
    "axes.linewidth": 0.7,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.8,
    "hatch.linewidth": 0.6,
    "hatch.color": "0.55",
    "figure.dpi": 150,
    "savefig.dpi": 300,
    "svg.hashsalt": "layerscope",
    "svg.fonttype": "path",
    "text.usetex": False,
    "text.parse_math": False,  # names of models and tasks may hold a dollar sign
}

# Okabe and Ito's colours without yellow, which is too pale for a line.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
LOOKS = len(_COLOURS)  # series that differ in colour and marker
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
_LINES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2)), (0, (7, 2)))
_LIGHTEST = 0.88  # of viridis, beyond which it is too pale for a line
_SLOTS = {"mean": 0, "mean-nosink": 1, "last": 2, "first": 3, "cls": 3, "max": 4, "weighted-mean": 5}


@dataclass(frozen=True)
class SeriesStyle:
    """What tells one line of a figure from the others, three times over."""

    colour: str
    marker: str
    line: Any
    hollow: bool
    role: str

    @property
    def face(self) -> str:
        """Fill of the markers."""
        return "white" if self.hollow else self.colour


@contextlib.contextmanager
def house_style() -> Iterator[None]:
    """Everything drawn inside follows the house style; nothing outside is changed."""
    import matplotlib as mpl

    with mpl.rc_context(_RC), warnings.catch_warnings():
        # A name in a script that the font lacks is drawn as boxes: no reason to fail.
        warnings.filterwarnings("ignore", message="Glyph .* missing from", category=UserWarning)
        yield


def new_figure(width: float, height: float) -> Figure:
    """A figure of ``width`` × ``height`` inches that no global state knows of."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from layerscope.plots.notebook_figure import NotebookFigure

    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def slots_of(poolings: Iterable[str]) -> dict[str, int]:
    """The style slot of each pooling: the same in every figure, and no two alike in one.

    >>> slots_of(["tokens", "tokens-nosink", "mean", "mine"])
    {'tokens': 0, 'tokens-nosink': 1, 'mean': 2, 'mine': 3}
    """
    slots: dict[str, int] = {}
    for pooling in poolings:
        if pooling not in slots:
            wanted = _SLOTS.get(pooling_family(pooling), 0)
            taken = set(slots.values())
            slots[pooling] = next(slot for slot in _from(wanted) if slot not in taken)
    return slots


def _from(start: int) -> Iterator[int]:
    while True:
        yield start
        start += 1


def pooling_family(pooling: str) -> str:
    """The pooling of vectors that a token-level metric goes with.

    >>> pooling_family("tokens-nosink")
    'mean-nosink'
    """
    return "mean" + pooling.removeprefix("tokens") if pooling.startswith("tokens") else pooling


def series_style(slot: int, nth: int) -> SeriesStyle:
    """The style of the ``nth`` series of the pooling in ``slot``."""
    return SeriesStyle(
        colour=_COLOURS[slot % len(_COLOURS)],
        marker=_MARKERS[slot % len(_MARKERS)],
        line=_LINES[(slot + nth) % len(_LINES)],
        hollow=nth % 2 == 1,
        role=f"line.{slot}.{nth}",
    )


def sequential_style(nth: int, count: int) -> SeriesStyle:
    """The style of the ``nth`` of ``count`` lines that stand in an order: light to dark, marker and dashes.

    >>> sequential_style(0, 2).colour < sequential_style(1, 2).colour, sequential_style(1, 2).colour
    (False, '#440154')
    """
    import matplotlib as mpl

    share = nth / max(count - 1, 1)
    colour = mpl.colors.to_hex(mpl.colormaps["viridis"](_LIGHTEST * (1 - share)))
    return SeriesStyle(
        colour, _MARKERS[nth % len(_MARKERS)], _LINES[nth % len(_LINES)], nth % 2 == 1, f"line.level.{nth}"
    )


def tag(ax: Axes, role: str) -> str:
    """An id for the next artist of ``ax`` that tells its role, unlike every other id of the figure."""
    figure = ax.get_figure(root=True)
    panels = figure.axes if figure else []
    panel = panels.index(ax) if ax in panels else len(panels)  # inset axes are not listed
    return f"{role}:{panel}:{len(ax.get_children())}"


def role_of(artist: Artist) -> str:
    """The role that :func:`tag` gave an artist, or an empty string."""
    return (artist.get_gid() or "").partition(":")[0]


def label_of(name: str, labels: Mapping[str, str] | None) -> str:
    """The axis label of a metric: what ``labels`` says, else its name in words."""
    return (labels or {}).get(name) or name.replace("_", " ")


def wrapped(text: str, width: int) -> str:
    """``text`` broken into lines of at most ``width`` characters."""
    return "\n".join(textwrap.wrap(text, width))


def add_legend(figure: Figure, axes: Iterable[Axes], own: bool, title: str | None = None) -> None:
    """One legend for all ``axes``, each entry once: below a figure of ours, else inside the axes.

    A figure of ours grows by the height of its legend, so that the axes keep theirs.

    Args:
        figure: the figure.
        axes: the axes whose artists have labels.
        own: whether the figure was made here, so that its margins are ours to use.
        title: a line above the entries.
    """
    panels = list(axes)
    names, handles = _legend_entries(panels)
    if not own:
        panels[0].legend(handles, names, loc="best", title=title, title_fontsize=SMALL)
        return
    width, height = (float(side) for side in figure.get_size_inches())
    names = [wrapped(name, int(0.9 * (width - _HANDLE) / _LETTER)) for name in names]  # of models, say
    columns = _legend_columns(names, width)
    lines = -(-len(names) // columns) * max(name.count("\n") + 1 for name in names) + (title is not None)
    figure.set_size_inches(width, height + 0.15 * lines)
    figure.legend(
        handles, names, loc="outside lower center", ncols=columns, title=title, title_fontsize=SMALL
    )


def _legend_entries(panels: list[Axes]) -> tuple[list[str], list[Any]]:
    """Labels and handles: lines first, then marks; lines that look alike share an entry."""
    found: dict[Any, tuple[list[str], Any]] = {}
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            role = role_of(handle)
            key = role if role.startswith("line") else (role, label)
            names, _ = found.setdefault(key, ([], handle))
            names.extend([label] if label not in names else [])
    entries = sorted(found.values(), key=lambda entry: _MARKS.get(role_of(entry[1]), 0))
    return [" / ".join(names) for names, _ in entries], [handle for _, handle in entries]


def _legend_columns(names: list[str], width: float) -> int:
    """How many entries fit beside each other in ``width`` inches."""
    entry = max(len(line) for name in names for line in name.split("\n")) * _LETTER + _HANDLE
    return max(1, min(len(names), int(width / entry)))
