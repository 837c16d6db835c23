"""mean ‖x_i - y_i‖^α over unit rows."""

import math

from tests.reference.rows import difference, dot, prepared


def alignment(X, Y, alpha=2.0):
    distances = []
    for x, y in zip(prepared(X, "unit"), prepared(Y, "unit"), strict=True):
        apart = difference(x, y)
        distances.append(math.sqrt(dot(apart, apart)) ** alpha)
    return math.fsum(distances) / len(distances)
