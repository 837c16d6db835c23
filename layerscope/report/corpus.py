"""The data report: how many texts there were, and what is wrong with some."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.errors import count_of
from layerscope.layers import as_layer_order

if TYPE_CHECKING:
    import pandas as pd

_FLAGS = {
    "truncated": ("cut at the maximum length", "the end of these texts was never seen"),
    "empty": ("empty", "they have no tokens and no vectors"),
}


def count_rows(rows: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Counts of the texts as (what, how many, what it means); absent columns are left out."""
    counts = [("texts", f"{len(rows):,}", "")]
    if "tokens" in rows.columns and len(rows):
        tokens = rows["tokens"]
        spread = f"{tokens.min():,} to {tokens.max():,} in a text"
        counts.append(("tokens", f"{tokens.sum():,}", spread))
    for column, (name, meaning) in _FLAGS.items():
        if column in rows.columns:
            counts.append((name, f"{int(rows[column].sum()):,}", meaning))
    if "duplicate_of" in rows.columns:
        twice = int(rows["duplicate_of"].notna().sum())
        counts.append(("duplicates of an earlier text", f"{twice:,}", "they count twice in every metric"))
    if "nonfinite" in rows.columns:
        counts.append(_nonfinite(rows["nonfinite"]))
    return counts


def _nonfinite(column: pd.Series[str]) -> tuple[str, str, str]:
    texts = [text for text in column.dropna().astype(str) if text]
    layers = as_layer_order({name.strip() for text in texts for name in text.split(",")})
    where = f"in {count_of(len(layers), 'layer')}: {', '.join(layers)}" if layers else ""
    return ("not finite (NaN or infinite) somewhere", f"{len(texts):,}", where)
