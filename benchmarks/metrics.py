"""What the metrics cost, as ratios to the plain way of computing them and to peers, in one run.

    python benchmarks/metrics.py [--rounds N] [--only NAME]

Each part prints seconds, the ratio, and how far the metric is from its limit: the eigen-decomposition or
the matrix product that it cannot do without. Loops are the slow references in ``tests/reference``. Peers are
timed where they are installed (``pip install --no-deps reptrix pytorch-cka``; scikit-dimension always is).
"""

import argparse
import importlib.util
import resource
import statistics
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from timing import in_turn, ratio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the slow references are in tests/

from layerscope.metrics import METRICS, get_metric
from layerscope.metrics.cka import cka_matrix
from layerscope.metrics.curvature import curvature, curvature_batch
from layerscope.metrics.intrinsic_dimension import intrinsic_dimension_mle, intrinsic_dimension_twonn
from layerscope.metrics.prompt_entropy import prompt_entropy, prompt_entropy_batch
from layerscope.metrics.rows import prepare
from layerscope.metrics.spectral import decompose
from tests.reference import curvature as slow_curvature
from tests.reference import matrix_entropy as slow_entropy
from tests.reference.lidar import scatter

LAYERS, N, D = 13, 1000, 768
_REST = 0.5  # seconds for the threads of the run before to stop spinning


def show(times: dict[str, list[float]], base: str) -> None:
    """Median seconds, and the median of the ratios to ``base`` of the same round."""
    for name, taken in times.items():
        print(f"  {name:58s} {statistics.median(taken):9.3f} s   x {ratio(taken, times[base]):.2f}")


def embeddings(n: int, d: int, seed: int = 0) -> np.ndarray:
    """Rows with a decaying spectrum and an offset, as embeddings have."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)) * np.arange(1, d + 1) ** -0.5 + 0.1


def spectral(rounds: int) -> None:
    """All spectral metrics under one recipe against one eigenvalue pass per layer."""
    layers = [embeddings(N, D, seed) for seed in range(LAYERS)]
    specs = [spec for spec in METRICS if spec.of_spectrum is not None and spec.rows == "center-unit"]

    def gram(Z: np.ndarray) -> np.ndarray:
        rows = prepare(Z, "center-unit")
        return rows.T @ rows

    def shared() -> None:
        for Z in layers:
            found = decompose(Z, "center-unit")
            for spec in specs:
                assert spec.of_spectrum is not None
                spec.of_spectrum(found)

    def eigenvalue_pass() -> None:
        for Z in layers:
            np.linalg.eigvalsh(gram(Z))

    runs: dict[str, Callable[[], object]] = {
        "one eigenvalue pass per layer": eigenvalue_pass,
        f"all {len(specs)} metrics, one shared spectrum": shared,
        "the same, a decomposition for each metric": lambda: [
            spec.function(Z) for Z in layers for spec in specs
        ],
        "limit: matrix products alone": lambda: [gram(Z) for Z in layers],
    }
    if importlib.util.find_spec("reptrix"):
        from reptrix import alpha, rankme

        tensors = [torch.from_numpy(Z) for Z in layers]
        runs["peer: reptrix, RankMe and alpha-ReQ only"] = lambda: [
            (rankme.get_rankme(Z), alpha.get_alpha(Z)) for Z in tensors
        ]
    print(
        f"spectral metrics ({', '.join(spec.name for spec in specs)}), {LAYERS} layers x {N} x {D}, float64"
    )
    show(in_turn(runs, rounds, _REST), "one eigenvalue pass per layer")


def lidar(rounds: int) -> None:
    """LiDAR with 16 views against a loop of outer products."""
    views, counted = 16, 20
    rng = np.random.default_rng(0)
    V = embeddings(N, D)[:, None] + 0.1 * rng.normal(size=(N, views, D))
    few = V[:counted]
    runs: dict[str, Callable[[], object]] = {
        "LiDAR": lambda: get_metric("lidar").function(V),
        "limit: the matrix product within classes": lambda: V.reshape(-1, D).T @ V.reshape(-1, D),
    }
    if importlib.util.find_spec("reptrix"):
        from reptrix import lidar as peer

        tensor = torch.from_numpy(V)
        runs["peer: reptrix"] = lambda: peer.get_lidar(tensor, N, views)
    loop = f"loop of outer products ({counted} samples timed, x {N // counted})"
    runs[loop] = lambda: scatter(list(few))
    times = in_turn(runs, rounds, _REST)
    times[loop] = [taken * N / counted for taken in times[loop]]
    print(f"LiDAR, {N} samples x {views} views x {D}")
    show(times, "LiDAR")


def prompts(rounds: int) -> None:
    """Token metrics of padded batches against one prompt at a time."""
    rng = np.random.default_rng(0)
    lengths = np.sort(rng.integers(10, 61, size=N))
    states = [rng.normal(size=(length, 384)).astype(np.float32) for length in lengths]
    batches = []
    for start in range(0, N, 50):
        part = states[start : start + 50]
        padded = torch.zeros(len(part), max(map(len, part)), 384)
        mask = torch.zeros(padded.shape[:2], dtype=torch.bool)
        for row, prompt in enumerate(part):
            padded[row, : len(prompt)] = torch.from_numpy(prompt)
            mask[row, : len(prompt)] = True
        batches.append((padded, mask))
    print(f"token metrics, {N} prompts of 10 to 60 tokens x 384")

    def grams() -> None:
        for padded, _ in batches:
            rows = padded.double()
            torch.linalg.eigvalsh(rows @ rows.mT)

    def differences() -> None:
        for padded, _ in batches:
            rows = padded.double()
            (rows[:, 1:] - rows[:, :-1]).norm(dim=-1)

    few = states[25 :: N // 4]
    for name, one, many, loop, limit, minimum in (
        ("prompt entropy", prompt_entropy, prompt_entropy_batch, slow_entropy.matrix_entropy,
         "matrix products and eigenvalues", grams),
        ("curvature", curvature, curvature_batch, slow_curvature.curvature,
         "differences and norms", differences),
    ):  # fmt: skip
        runs: dict[str, Callable[[], object]] = {
            f"{name}, batches of 50": lambda many=many: [many(*batch) for batch in batches],
            f"limit: {limit}": minimum,
            f"{name}, our function of one prompt at a time": lambda one=one: [one(each) for each in states],
        }
        label = f"loop, one prompt at a time ({len(few)} timed, x {N // len(few)})"
        runs[label] = lambda loop=loop: [loop(each.tolist()) for each in few]
        times = in_turn(runs, rounds, _REST)
        times[label] = [taken * N / len(few) for taken in times[label]]
        show(times, f"{name}, batches of 50")


def uniformity(rounds: int) -> None:
    """Uniformity of many rows, which never holds an (n, n) matrix."""
    n = 20_000
    Z = embeddings(n, 384).astype(np.float32)
    block = 2000

    def products() -> None:
        for start in range(0, n, block):
            for other in range(start, n, block):
                Z[start : start + block].astype(np.float64) @ Z[other : other + block].T.astype(np.float64)

    runs: dict[str, Callable[[], object]] = {
        "limit: the matrix products alone": products,
        "uniformity": lambda: get_metric("uniformity").function(Z),
    }
    print(f"uniformity, {n} x 384")
    show(in_turn(runs, rounds, _REST), "limit: the matrix products alone")
    tracemalloc.start()
    get_metric("uniformity").function(Z)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"  peak memory {peak / 2**20:.0f} MiB; an (n, n) matrix would take {8 * n * n / 2**20:.0f} MiB")


def cka(rounds: int) -> None:
    """Unbiased linear CKA of all pairs of layers in mini-batches."""
    batch = 250
    rng = np.random.default_rng(0)
    layers = [embeddings(N, D)]
    for _ in range(LAYERS - 1):
        layers.append(layers[-1] + 0.3 * rng.normal(size=(N, D)))
    batches = [[Z[start : start + batch] for Z in layers] for start in range(0, N, batch)]

    def products() -> None:
        for parts in batches:
            for Z in parts:
                Z @ Z.T

    runs: dict[str, Callable[[], object]] = {
        "CKA of all pairs of layers": lambda: cka_matrix(batches),
        "limit: one Gram matrix a layer and batch": products,
    }
    if importlib.util.find_spec("cka"):
        from cka import cka_from_features

        tensors = [torch.from_numpy(np.stack(parts)) for parts in batches]
        runs["peer: pytorch-cka"] = lambda: [cka_from_features(parts, parts) for parts in tensors]
    print(f"CKA, {LAYERS} layers x {N} x {D} in batches of {batch}")
    show(in_turn(runs, rounds, _REST), "CKA of all pairs of layers")


def intrinsic_dimension(rounds: int) -> None:
    """The two intrinsic dimensions against scikit-dimension on its own."""
    from skdim.id import MLE, TwoNN

    Z = embeddings(1024, D)
    runs: dict[str, Callable[[], object]] = {
        "TwoNN": lambda: intrinsic_dimension_twonn(Z),
        "peer: scikit-dimension, TwoNN": lambda: TwoNN().fit(Z),
        "MLE": lambda: intrinsic_dimension_mle(Z),
        "peer: scikit-dimension, MLE": lambda: MLE().fit(Z, n_neighbors=20),
        "limit: the matrix product of the distances": lambda: Z @ Z.T,
    }
    print(f"intrinsic dimension, 1024 x {D}")
    show(in_turn(runs, rounds, _REST), "TwoNN")


PARTS = {
    "spectral": spectral,
    "lidar": lidar,
    "prompts": prompts,
    "uniformity": uniformity,
    "cka": cka,
    "intrinsic-dimension": intrinsic_dimension,
}


def main() -> None:
    """Run the parts and print their ratios and the peak memory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=PARTS)
    options = parser.parse_args()
    for name, part in PARTS.items():
        if options.only in (None, name):
            part(options.rounds)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(f"  peak memory of the process so far {peak:.0f} MiB")


if __name__ == "__main__":
    main()
