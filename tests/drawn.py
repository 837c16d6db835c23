"""What a figure shows, read back from its artists."""

from __future__ import annotations

from layerscope.plots.style import role_of


def lines(ax):
    return [line for line in ax.lines if role_of(line).startswith("line")]


def marks(ax, role):
    return [artist for artist in ax.get_children() if role_of(artist) == role]


def legend_texts(ax):
    return [text.get_text() for legend in ax.figure.legends for text in legend.get_texts()]


def tick_texts(ax):
    return [tick.get_text() for tick in ax.get_xticklabels()]


def tight_box(artist, figure):
    return artist.get_window_extent(figure.canvas.get_renderer())
