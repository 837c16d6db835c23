"""exp(-Σ q ln q) over the singular values, here square roots of the eigenvalues of the Gram matrix."""

import math

from tests.reference.eigen import eigenvalues
from tests.reference.rows import dot, prepared


def effective_rank(Z, rows="center-unit"):
    Z = prepared(Z, rows)
    values = [value for value in eigenvalues([[dot(a, b) for b in Z] for a in Z]) if value > 1e-13]
    sigma = [math.sqrt(value) for value in values]
    q = [value / math.fsum(sigma) for value in sigma]
    return math.exp(-math.fsum(value * math.log(value) for value in q))
