"""Norm of the first token over the median norm."""

import math
import statistics

from tests.reference.rows import dot


def first_token_norm_ratio(Z):
    norms = [math.sqrt(dot(row, row)) for row in Z]
    return norms[0] / statistics.median(norms)
