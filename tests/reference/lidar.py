"""exp of the entropy of the eigenvalues of Σ_w^{-1/2} Σ_b Σ_w^{-1/2}, written out."""

import math

import numpy as np

from tests.reference.eigen import eigenvalues
from tests.reference.rows import prepared


def lidar(V, delta=1e-4):
    between, within = scatter([np.array(prepared(sample, "unit")) for sample in V], delta)
    values, vectors = np.linalg.eigh(within)
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    found = [value for value in eigenvalues((root @ between @ root).tolist()) if value > 0]
    p = [value / math.fsum(found) for value in found]
    return math.exp(-math.fsum(value * math.log(value) for value in p))


def scatter(V, delta=1e-4):
    """Covariance between and within samples, an outer product a view."""
    n, a, d = np.shape(V)
    grand = sum(view for sample in V for view in sample) / (n * a)
    between, within = np.zeros((d, d)), delta * np.eye(d)
    for sample in V:
        mean = sum(sample) / a
        between += np.outer(mean - grand, mean - grand) / n
        for view in sample:
            within += np.outer(view - mean, view - mean) / (n * a)
    return between, within
