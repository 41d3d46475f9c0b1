"""Every message that proves a fact; a cause's own stand in its record."""

from __future__ import annotations

from gpusetup.messages import (
    boundary,
    driver,
    makers,
    packages,
    torch,
)

ROWS = (
    *driver.ROWS,
    *boundary.ROWS,
    *torch.ROWS,
    *packages.ROWS,
    *makers.ROWS,
)
