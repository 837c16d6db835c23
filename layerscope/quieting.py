"""Log lines of libraries kept off the terminal."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator


@contextlib.contextmanager
def quiet_loggers(*names: str) -> Iterator[None]:
    """Errors only from the loggers with these names, each put back to its own level afterwards.

    >>> with quiet_loggers("a.library"):
    ...     logging.getLogger("a.library").level == logging.ERROR
    True
    """
    loggers = [logging.getLogger(name) for name in names]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
