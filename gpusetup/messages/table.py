"""Every message of a program that is known, as one table of rows."""

from __future__ import annotations

from gpusetup.messages import (
    beside,
    builds,
    container,
    cuda,
    driver,
    failures,
    frameworks,
    imports,
    installing,
    libraries,
    makers,
    parallel,
    results,
    stack,
)

ROWS = (
    *driver.ROWS,
    *container.ROWS,
    *cuda.ROWS,
    *libraries.ROWS,
    *imports.ROWS,
    *builds.ROWS,
    *installing.ROWS,
    *parallel.ROWS,
    *beside.ROWS,
    *frameworks.ROWS,
    *makers.ROWS,
    *results.ROWS,
    *stack.ROWS,
    *failures.ROWS,
)
"""Every message that is known."""
