"""H_α of the eigenvalues of K = Z Zᵀ / tr(Z Zᵀ), always on the (n, n) side."""

import math

from tests.reference.eigen import eigenvalues
from tests.reference.rows import dot, prepared


def matrix_entropy(Z, alpha=1.0, rows="center-unit"):
    Z = prepared(Z, rows)
    return entropy_of([[dot(a, b) for b in Z] for a in Z], alpha)


def entropy_of(gram, alpha=1.0):
    trace = math.fsum(gram[i][i] for i in range(len(gram)))
    p = [value / trace for value in eigenvalues(gram)]
    p = [value for value in p if value > 1e-13]
    if alpha == 1:
        return -math.fsum(value * math.log(value) for value in p)
    return math.log(math.fsum(value**alpha for value in p)) / (1 - alpha)
