"""Unbiased HSIC as Song et al. 2012 write it, from Gram matrices without their diagonals."""

import math

from tests.reference.rows import dot, prepared


def cka(X, Y):
    K, L = _gram(X), _gram(Y)
    return hsic(K, L) / math.sqrt(hsic(K, K) * hsic(L, L))


def cka_in_batches(batches):
    """Nguyen et al. 2021, for two layers."""
    sums = [0.0, 0.0, 0.0]
    for X, Y in batches:
        K, L = _gram(X), _gram(Y)
        for k, value in enumerate([hsic(K, L), hsic(K, K), hsic(L, L)]):
            sums[k] += value / len(batches)
    return sums[0] / math.sqrt(sums[1] * sums[2])


def hsic(K, L):
    n = len(K)
    trace = math.fsum(K[i][j] * L[j][i] for i in range(n) for j in range(n))
    sums = math.fsum(map(math.fsum, K)) * math.fsum(map(math.fsum, L))
    chain = math.fsum(K[i][j] * L[j][m] for i in range(n) for j in range(n) for m in range(n))
    return (trace + sums / ((n - 1) * (n - 2)) - 2 * chain / (n - 2)) / (n * (n - 3))


def _gram(Z):
    # Centring changes nothing but the size of the numbers that cancel.
    Z = prepared(Z, "center")
    return [[0.0 if i == j else dot(Z[i], Z[j]) for j in range(len(Z))] for i in range(len(Z))]
