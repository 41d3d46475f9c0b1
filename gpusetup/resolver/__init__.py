"""Which torch build fits: a machine and a request against the catalog's rows. Pure."""

from __future__ import annotations

from gpusetup.resolver.decide import check_request, resolve, to_answer

__all__ = ["check_request", "resolve", "to_answer"]
