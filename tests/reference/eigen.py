"""Eigenvalues of a symmetric matrix by Jacobi's rotations: no LAPACK."""

import math


def eigenvalues(matrix, sweeps=60):
    A = [list(row) for row in matrix]
    m = len(A)
    for _ in range(sweeps):
        if math.fsum(A[i][j] ** 2 for i in range(m) for j in range(m) if i != j) == 0:
            break
        for p in range(m):
            for q in range(p + 1, m):
                _rotate(A, p, q)
    return [A[i][i] for i in range(m)]


def _rotate(A, p, q):
    if A[p][q] == 0:
        return
    angle = 0.5 * math.atan2(2 * A[p][q], A[q][q] - A[p][p])
    c, s = math.cos(angle), math.sin(angle)
    for k in range(len(A)):
        A[k][p], A[k][q] = c * A[k][p] - s * A[k][q], s * A[k][p] + c * A[k][q]
    for k in range(len(A)):
        A[p][k], A[q][k] = c * A[p][k] - s * A[q][k], s * A[p][k] + c * A[q][k]
    A[p][q] = A[q][p] = 0.0
