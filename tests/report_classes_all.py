"""All classes of texts, whichever file holds them."""

from __future__ import annotations

from report_classes import CLASSES, Class
from report_classes_beside import BESIDE
from report_classes_evidence import EVIDENCE
from report_classes_failures import FAILURES
from report_classes_further import FURTHER
from report_classes_lacking import LACKING
from report_classes_later import LATER
from report_classes_servers import SERVERS
from report_classes_spoken import SPOKEN
from report_classes_titles import TITLES
from report_classes_told import TOLD
from report_classes_training import TRAINING

EVERY: dict[str, Class] = {
    **CLASSES,
    **LATER,
    **FURTHER,
    **FAILURES,
    **SERVERS,
    **TITLES,
    **SPOKEN,
    **LACKING,
    **TOLD,
    **EVIDENCE,
    **BESIDE,
    **TRAINING,
}
