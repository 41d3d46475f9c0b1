"""Names of NVIDIA's GPUs of which only the PCI device id is known."""

from __future__ import annotations

from functools import cache

from gpusetup.catalog.facts import PciName, facts

WITHOUT_MAKER = ("Tesla", "Quadro")
"""Their names begin so; the others begin with NVIDIA."""


@cache
def _rows() -> dict[str, str]:
    return {id: row.name for row in facts(PciName) for id in row.ids.split()}


def board(device_id: str | None) -> str | None:
    """The name of an NVIDIA GPU by its PCI device id; None where the table has none.

    >>> board("2504"), board("1EB8"), board("ffff"), board(None)
    ('NVIDIA GeForce RTX 3060', 'Tesla T4', None, None)
    """
    name = _rows().get((device_id or "").lower())
    return name if not name or name.startswith(WITHOUT_MAKER) else f"NVIDIA {name}"
