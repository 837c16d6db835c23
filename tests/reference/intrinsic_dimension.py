"""TwoNN and Levina-Bickel from all pairwise distances, without scikit-dimension."""

import math

from tests.reference.rows import difference, dot


def twonn(Z, discard=0.1):
    """Facco et al. 2017: a line through the origin, least squares."""
    ratios = sorted(near[1] / near[0] for near in _distances(Z))
    n = len(ratios)
    kept = ratios[: int(n * (1 - discard))]
    x = [math.log(ratio) for ratio in kept]
    y = [-math.log(1 - (k + 1) / n) for k in range(len(kept))]
    return dot(x, y) / dot(x, x)


def mle(Z, neighbours=20):
    """Levina & Bickel 2004, averaged as MacKay & Ghahramani 2005 do."""
    inverses = []
    for near in _distances(Z):
        logs = [math.log(near[neighbours - 1] / near[j]) for j in range(neighbours - 1)]
        inverses.append(math.fsum(logs) / (neighbours - 1))
    return len(inverses) / math.fsum(inverses)


def _distances(Z):
    Z = [list(row) for row in dict.fromkeys(map(tuple, Z))]
    for i, x in enumerate(Z):
        apart = [difference(x, y) for j, y in enumerate(Z) if j != i]
        yield sorted(math.sqrt(dot(step, step)) for step in apart)
