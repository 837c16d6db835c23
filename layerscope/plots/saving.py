"""Figures as files, the same bytes every time."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from layerscope.errors import UsageError, nearest
from layerscope.files import make_folder, write_atomic
from layerscope.plots.style import house_style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_UNDATED = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}


def save_figure(
    figure: Figure, path_without_suffix: str | Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write ``figure`` once per format, each file whole or not at all.

    Args:
        figure: what ``plot_metrics`` returns, or ``ax.figure``.
        path_without_suffix: where to; the format is appended (``figures/block.4`` gives
            ``figures/block.4.png``).
        formats: any of ``png``, ``svg``, ``pdf``.

    Returns:
        The paths, in the order of ``formats``.

    Raises:
        UsageError: an unknown format.
        CacheError: the file cannot be written.
    """
    base = Path(path_without_suffix)
    for name in formats:
        if name not in _UNDATED:
            raise UsageError(f"no figure format is called '{name}': {nearest(name, _UNDATED)}")
    make_folder(base.parent)
    targets = [base.with_name(f"{base.name}.{name}") for name in formats]
    for target, name in zip(targets, formats, strict=True):
        write_atomic(target, lambda temporary, name=name: _save(figure, temporary, name))  # type: ignore[misc]
    return targets


def figure_svg(figure: Figure) -> str:
    """``figure`` as the text of an SVG document, the same text every time."""
    stream = io.BytesIO()
    _save(figure, stream, "svg")
    return stream.getvalue().decode("utf-8")


def _save(figure: Figure, target: Path | IO[bytes], name: str) -> None:
    with house_style():
        figure.savefig(target, format=name, metadata=_UNDATED[name])
