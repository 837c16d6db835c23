"""The recipes of METRICS.md for rows, one number at a time."""

import math


def prepared(Z, rows):
    matrix = [[float(value) for value in row] for row in Z]
    width = len(matrix[0])
    if rows in ("center", "center-unit"):
        mean = [math.fsum(row[k] for row in matrix) / len(matrix) for k in range(width)]
        matrix = [[row[k] - mean[k] for k in range(width)] for row in matrix]
    if rows in ("unit", "center-unit"):
        matrix = [unit(row) for row in matrix]
    return matrix


def unit(row):
    norm = math.sqrt(dot(row, row))
    return [value / norm for value in row] if norm > 0 else row


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b, strict=True))


def difference(a, b):
    return [x - y for x, y in zip(a, b, strict=True)]
