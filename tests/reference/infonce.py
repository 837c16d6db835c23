"""Symmetric NT-Xent: each of the 2n rows against its positive and the other 2n - 2 rows."""

import math

from tests.reference.rows import dot, prepared


def infonce(X, Y, temperature=0.1):
    Z = prepared(X, "unit") + prepared(Y, "unit")
    n = len(Z) // 2
    losses = []
    for i in range(2 * n):
        positive = math.exp(dot(Z[i], Z[(i + n) % (2 * n)]) / temperature)
        everything = math.fsum(math.exp(dot(Z[i], Z[j]) / temperature) for j in range(2 * n) if j != i)
        losses.append(-math.log(positive / everything))
    return math.fsum(losses) / len(losses)


def infonce_bound(X, Y):
    return math.log(2 * len(X) - 1) - infonce(X, Y)
