"""All classes of texts, whichever file holds them."""

from __future__ import annotations

from report_classes import CLASSES, Class
from report_classes_evidence import EVIDENCE
from report_classes_later import LATER

EVERY: dict[str, Class] = {
    **CLASSES,
    **LATER,
    **EVIDENCE,
}
