"""mean_Π H(K_X ∘ Π K_Y Πᵀ) - H(K_X ∘ K_Y), entry by entry, with numpy's seeded permutations."""

import math

import numpy as np

from tests.reference.matrix_entropy import entropy_of
from tests.reference.rows import dot, prepared


def dime(X, Y, permutations=10, seed=0):
    generator = np.random.default_rng(seed)
    orders = [generator.permutation(len(X)) for _ in range(permutations)]
    wrong = [_joint_entropy(X, Y, order) for order in orders]
    return math.fsum(wrong) / len(wrong) - _joint_entropy(X, Y, range(len(X)))


def _joint_entropy(X, Y, order):
    X, Y = prepared(X, "unit"), prepared(Y, "unit")
    n = len(X)
    Y = [Y[k] for k in order]
    return entropy_of([[dot(X[i], X[j]) / n * dot(Y[i], Y[j]) / n for j in range(n)] for i in range(n)])
