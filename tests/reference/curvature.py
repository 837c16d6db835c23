"""Mean arccos of the cosine between successive difference vectors."""

import itertools
import math

from tests.reference.rows import difference, dot


def curvature(Z):
    Z = [[float(value) for value in row] for row in Z]
    steps = [difference(Z[k + 1], Z[k]) for k in range(len(Z) - 1)]
    steps = [step for step in steps if any(step)]
    angles = []
    for v, w in itertools.pairwise(steps):
        cosine = dot(v, w) / (math.sqrt(dot(v, v)) * math.sqrt(dot(w, w)))
        angles.append(math.acos(min(1.0, max(-1.0, cosine))))
    return math.fsum(angles) / len(angles)
