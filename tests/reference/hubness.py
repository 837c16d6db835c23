"""Skewness of how often each row is among the k others of largest cosine."""

import math

from tests.reference.rows import dot, prepared


def k_occurrence(Z, k=10):
    Z = prepared(Z, "unit")
    counts = [0] * len(Z)
    for i, x in enumerate(Z):
        others = sorted((j for j in range(len(Z)) if j != i), key=lambda j, x=x: -dot(x, Z[j]))
        for j in others[:k]:
            counts[j] += 1
    return counts


def hubness(Z, k=10):
    counts = k_occurrence(Z, k)
    mean = math.fsum(counts) / len(counts)
    variance = math.fsum((count - mean) ** 2 for count in counts) / len(counts)
    return math.fsum((count - mean) ** 3 for count in counts) / len(counts) / variance**1.5
