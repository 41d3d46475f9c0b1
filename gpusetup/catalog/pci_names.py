"""Names of NVIDIA's GPUs of which only the PCI device id is known."""

from __future__ import annotations

from functools import cache

from gpusetup.catalog.facts import PciName, facts


def board(device_id: str | None) -> str | None:
    """The name of an NVIDIA GPU by its PCI device id; None if the table has none.

    >>> board("2504"), board("1EB8"), board("ffff"), board(None)
    ('NVIDIA GeForce RTX 3060', 'Tesla T4', None, None)
    """
    return _names().get((device_id or "").lower())


@cache
def _names() -> dict[str, str]:
    apart = ("Tesla", "Quadro")  # the names of the others begin with NVIDIA
    return {
        id: row.name if row.name.startswith(apart) else f"NVIDIA {row.name}"
        for row in facts(PciName)
        for id in row.ids.split()
    }
