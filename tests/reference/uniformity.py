"""ln mean_{i<j} exp(-t ‖x_i - x_j‖²) over unit rows."""

import math

from tests.reference.rows import difference, dot, prepared


def uniformity(Z, t=2.0):
    Z = prepared(Z, "unit")
    potentials = []
    for i in range(len(Z)):
        for j in range(i + 1, len(Z)):
            apart = difference(Z[i], Z[j])
            potentials.append(math.exp(-t * dot(apart, apart)))
    return math.log(math.fsum(potentials) / len(potentials))
