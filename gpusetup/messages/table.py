"""Every message of a program that is known, as one table of rows."""

from __future__ import annotations

from gpusetup.messages import (
    beside,
    builds,
    container,
    cuda,
    driver,
    engines,
    failures,
    frameworks,
    imports,
    installing,
    libraries,
    local_models,
    makers,
    model_tools,
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
    *engines.ROWS,
    *local_models.ROWS,
    *model_tools.ROWS,
)
"""Every message that is known."""
