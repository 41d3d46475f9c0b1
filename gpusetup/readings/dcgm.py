"""What `dcgmi diag` says, as JSON (`-j`) or as its table: the tests that failed, and on which GPUs.

    | Memory Bandwidth          | Fail - GPU: 1                                  |
    | Warning                   | GPU 1: ...                                     |

JSON of releases 2 to 4: `test_categories[].tests[].results[]` with `gpu_id`, `gpu_ids` or
`entity_id`, a `status`, and `warnings` as text or as records.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from gpusetup.model.frozen import Frozen
from gpusetup.model.patterns import lazy

ROW = lazy(r"^\|[ \t]*([^|\n]*?)[ \t]*\|[ \t]*([^|\n]*?)[ \t]*\|[ \t\r]*$", re.M)
STATUS = lazy(r"^(Pass|Fail|Warn|Skip)\b", re.I)
VERDICT = lazy(r"(?:Pass|Fail|Warn)", re.I)
OF_A_GPU = lazy(r"^GPU\s?(\d+):\s*(Pass|Fail|Warn|Skip)\b", re.I)
SAYS = lazy(r"^(?:Warning|Error|Info)\b", re.I)
TITLES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


class DcgmTest(Frozen):
    """One test that did not pass."""

    name: str
    gpus: tuple[int, ...] = ()
    """Empty where it is of no GPU alone."""
    says: str = ""


class DcgmRun(Frozen):
    tests: int
    """How many passed, warned or failed; one that was left out says nothing."""
    failed: tuple[DcgmTest, ...] = ()


def parse_dcgm(text: str) -> DcgmRun | None:
    """A diagnostic's outcome; None for any other text.

    >>> parse_dcgm("| Diagnostic | Result |\\n| Memory | Fail - GPU: 0, 2 |\\n| Warning | hot |")
    DcgmRun(tests=1, failed=(DcgmTest(name='Memory', gpus=(0, 2), says='hot'),))
    """
    start = text.find("{")
    if start >= 0 and any(title in text for title in TITLES):
        try:
            return _of_json(json.loads(text[start:]))
        except (ValueError, RecursionError):
            return None
    return _of_table(text) if re.search(r"^\|\s*Diagnostic\s*\|\s*Result", text, re.M) else None


# --- JSON ----------------------------------------------------------------------------------------


def _of_json(document: Any) -> DcgmRun | None:
    whole = next((document[t] for t in TITLES if t in document), None)
    if not isinstance(whole, dict):
        return None
    categories = _dicts(whole, "test_categories")
    tests = [test for category in categories for test in _dicts(category, "tests")]
    failed = [found for test in tests if (found := _failed(test))]
    return DcgmRun(tests=sum(map(_is_judged, tests)), failed=tuple(failed))


def _is_judged(test: dict[str, Any]) -> bool:
    summary = test.get("test_summary")
    told = [*_dicts(test, "results"), *([summary] if isinstance(summary, dict) else [])]
    return any(VERDICT.match(str(one.get("status"))) for one in told)


def _dicts(value: dict[str, Any], name: str) -> Iterator[dict[str, Any]]:
    inner = value.get(name)
    yield from (one for one in inner if isinstance(one, dict)) if isinstance(inner, list) else ()


def _failed(test: dict[str, Any]) -> DcgmTest | None:
    bad = [result for result in _dicts(test, "results") if _is_failure(result.get("status"))]
    summary = test.get("test_summary")
    if isinstance(summary, dict) and _is_failure(summary.get("status")):
        bad.append({"entity_group": "", **summary})  # of the whole test, and of no GPU
    if not bad:
        return None
    gpus = tuple(dict.fromkeys(gpu for result in bad for gpu in _gpus(result)))
    says = [text for result in bad for text in _says(result)]
    return DcgmTest(name=str(test.get("name", "?"))[:80], gpus=gpus, says="; ".join(says)[:300])


def _is_failure(status: object) -> bool:
    return isinstance(status, str) and status.lower().startswith("fail")


def _gpus(result: dict[str, Any]) -> list[int]:
    if result.get("entity_group", "GPU") != "GPU":
        return []
    told = next((result[name] for name in ("gpu_id", "gpu_ids", "entity_id") if name in result), "")
    return [int(number) for number in re.findall(r"\d{1,4}", str(told))]


def _says(result: dict[str, Any]) -> Iterator[str]:
    told = result.get("warnings") or result.get("info") or ()
    for one in told if isinstance(told, list) else [told]:
        text = one.get("warning") if isinstance(one, dict) else one
        if isinstance(text, str) and text.strip():
            yield text.strip()


# --- the table -----------------------------------------------------------------------------------


def _of_table(text: str) -> DcgmRun:
    tests: list[DcgmTest] = []
    count, failing = 0, False
    for name, value in ROW.findall(text):
        status, of_gpu = STATUS.match(value), OF_A_GPU.match(value)
        if name and status:
            count += VERDICT.match(status[1]) is not None
            failing = _is_failure(status[1])
            if failing:
                tests.append(DcgmTest(name=name[:80], gpus=_numbers(value)))
        elif failing and tests:
            tests[-1] = _with(tests[-1], name, value, of_gpu)
    return DcgmRun(tests=count, failed=tuple(tests))


def _with(test: DcgmTest, name: str, value: str, of_gpu: re.Match[str] | None) -> DcgmTest:
    """A row that goes on about the test above it."""
    gpus, says = test.gpus, test.says
    if of_gpu and _is_failure(of_gpu[2]):
        gpus = (*gpus, int(of_gpu[1])) if int(of_gpu[1]) not in gpus else gpus
    elif not of_gpu and (SAYS.match(name) or (not name and says)):
        says = f"{says} {value}".strip()[:300]
    return DcgmTest(name=test.name, gpus=gpus, says=says)


def _numbers(value: str) -> tuple[int, ...]:
    found = re.search(r"GPUs?:?\s*([\d,\s]+)", value)
    return tuple(int(number) for number in re.findall(r"\d{1,4}", found[1])) if found else ()
