"""Every message that proves a fact, or a program's failure of its own; a cause's own stand in its record."""

from __future__ import annotations

from gpusetup.messages import (
    boundary,
    driver,
    jobs_failing,
    makers,
    models_failing,
    packages,
    programs_failing,
    servers_failing,
    torch,
)

ROWS = (
    *driver.ROWS,
    *boundary.ROWS,
    *torch.ROWS,
    *packages.ROWS,
    *makers.ROWS,
    *servers_failing.ROWS,
    *models_failing.ROWS,
    *programs_failing.ROWS,
    *jobs_failing.ROWS,
)
