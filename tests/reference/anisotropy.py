"""Mean cosine over all pairs i < j."""

import math

from tests.reference.rows import dot, prepared


def anisotropy(Z):
    Z = prepared(Z, "unit")
    cosines = [dot(Z[i], Z[j]) for i in range(len(Z)) for j in range(i + 1, len(Z))]
    return math.fsum(cosines) / len(cosines)
