"""Ranks, exponents and scores of one list of eigenvalues, always from the (n, n) side."""

import math

from tests.reference.eigen import eigenvalues
from tests.reference.rows import dot, prepared


def entropy_rank(Z, rows="center-unit"):
    values = spectrum(Z, rows)
    p = [value / math.fsum(values) for value in values]
    return math.exp(-math.fsum(value * math.log(value) for value in p))


def stable_rank(Z, rows="center-unit"):
    """The Frobenius norm entry by entry, the spectral norm by the largest eigenvalue."""
    frobenius = math.fsum(value**2 for row in prepared(Z, rows) for value in row)
    return frobenius / spectrum(Z, rows)[0]


def nesum(Z):
    values = spectrum(Z, "center")
    return math.fsum(value / values[0] for value in values)


def participation_ratio(Z, rows="center-unit"):
    values = spectrum(Z, rows)
    return math.fsum(values) ** 2 / math.fsum(value**2 for value in values)


def alpha_req(Z, rows="center-unit", first=11, last=100):
    values = spectrum(Z, rows)[first - 1 : last]
    x = [math.log(first + k) for k in range(len(values))]
    y = [math.log(value) for value in values]
    middle, height = math.fsum(x) / len(x), math.fsum(y) / len(y)
    covariance = math.fsum((a - middle) * (b - height) for a, b in zip(x, y, strict=True))
    return -covariance / math.fsum((a - middle) ** 2 for a in x)


def isoscore(Z):
    """The published steps, with the zero eigenvalues of unused dimensions."""
    d = len(Z[0])
    values = spectrum(Z, "center")
    values += [0.0] * (d - len(values))
    length = math.sqrt(math.fsum(value**2 for value in values))
    normed = [math.sqrt(d) * value / length for value in values]
    distance = math.sqrt(math.fsum((value - 1) ** 2 for value in normed))
    defect = distance / math.sqrt(2 * (d - math.sqrt(d)))
    used = (d - defect**2 * (d - math.sqrt(d))) ** 2 / d**2
    return (d * used - 1) / (d - 1)


def spectrum(Z, rows):
    """Descending, without those that are round-off."""
    Z = prepared(Z, rows)
    values = sorted(eigenvalues([[dot(a, b) for b in Z] for a in Z]), reverse=True)
    return [value for value in values if value > 1e-13 * values[0]]
