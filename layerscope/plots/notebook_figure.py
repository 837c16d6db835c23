"""The figure that plots draw into: a notebook shows it, and pyplot does not know of it."""

from __future__ import annotations

from io import BytesIO

from matplotlib.figure import Figure

_DPI = 110


class NotebookFigure(Figure):
    """A figure that is shown as a picture where it ends a notebook's cell, without pyplot."""

    def _repr_png_(self) -> bytes:
        content = BytesIO()
        self.savefig(content, format="png", dpi=_DPI)
        return content.getvalue()
