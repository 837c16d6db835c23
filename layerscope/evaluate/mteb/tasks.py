"""Which tasks: by name or benchmark, and their data."""

from __future__ import annotations

import contextlib
import difflib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from layerscope.errors import CorpusError, UsageError, first_line
from layerscope.evaluate.mteb.local_data import has_local_data, load_local_data, wanted_files
from layerscope.quieting import quiet_loggers


def find_tasks(names: Sequence[Any] = (), benchmark: str | None = None) -> list[Any]:
    """Mteb tasks by name, or as they are, and those of a benchmark; each once, aggregates as their parts.

    Raises:
        UsageError: none, or a name that mteb does not know; the nearest one is named.
    """
    with quiet():
        import mteb
        from mteb.benchmarks.get_benchmark import _build_registry
        from mteb.get_tasks import _TASKS_REGISTRY

        tasks: list[Any] = []
        if benchmark is not None:
            try:
                tasks += list(mteb.get_benchmark(benchmark).tasks)
            except KeyError as error:
                known = list(_build_registry())
                raise UsageError(
                    f"mteb has no benchmark '{benchmark}': {_closest(benchmark, known)}"
                ) from error
        for name in names:
            if isinstance(name, mteb.AbsTask):
                tasks.append(name)
                continue
            try:
                tasks.append(mteb.get_task(name))
            except KeyError as error:
                raise UsageError(
                    f"mteb has no task '{name}': {_closest(name, list(_TASKS_REGISTRY))}"
                ) from error
    if not tasks:
        raise UsageError("no task is named: give --tasks STSBenchmark,… or --benchmark NAME")
    parts = [part for task in tasks for part in _parts(task)]
    return list({task.metadata.name: task for task in parts}.values())


def _parts(task: Any) -> list[Any]:
    """The tasks that an aggregate averages over; a plain task itself."""
    if not task.is_aggregate:
        return [task]
    return [inner for part in task.metadata.tasks for inner in _parts(part)]


def _closest(name: str, known: Sequence[str]) -> str:
    lower = {entry.lower(): entry for entry in known}
    close = difflib.get_close_matches(name.lower(), lower, n=3, cutoff=0.5)
    if not close:
        return f"none of its {len(known):,} is spelled like it"
    return f"did you mean {' or '.join(repr(lower[entry]) for entry in close)}?"


def load_data(task: Any, folder: Path | None) -> str:
    """Load the data of ``task`` from files in ``folder``, where it has a folder there, or as mteb does.

    Returns:
        What identifies the data: a hash of the files, or the dataset's revision.

    Raises:
        CorpusError: the data cannot be had; the line says which files would do.
    """
    if folder is not None and has_local_data(folder, task):
        return load_local_data(folder, task)
    name, dataset = task.metadata.name, task.metadata.dataset
    try:
        task.load_data()
    except Exception as error:  # the hub client raises whatever the network gives
        try:
            files = f"--task-data DIR with {wanted_files(task)}"
        except UsageError:
            files = "a network connection"
        raise CorpusError(
            f"the data of {name} ({dataset['path']}) are not on this machine and could not be fetched "
            f"({first_line(error)[:120].rstrip('.')}): give {files}"
        ) from error
    return str(dataset.get("revision", ""))


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the progress bars, log lines and advice of mteb, datasets and scikit-learn off the terminal."""
    import datasets

    bars = datasets.utils.logging.is_progress_bar_enabled()
    datasets.utils.logging.disable_progress_bar()
    try:
        with quiet_loggers("mteb", "datasets", "huggingface_hub", "bitsandbytes"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if bars:
            datasets.utils.logging.enable_progress_bar()
