"""The order of causes decides as its witnesses say, and next to nothing in it is without one."""

from __future__ import annotations

import pytest
from each_row import each
from judging import judged
from precedence_guards import guards_told
from precedence_witnesses import Witness, answer, told, witnesses

from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Severity

LEAST_NOTICED_PERCENT = 90


@each("name, witness", witnesses)
def test_a_witness_has_this_root_and_these_consequences(name: str, witness: Witness) -> None:
    diagnosis = judged(witness.machine)
    assert answer(diagnosis.findings) == (witness.root, witness.wrong)
    assert next((f.id for f in diagnosis.findings if f.root), None) == witness.root


def test_what_is_changed_in_the_order_is_noticed() -> None:
    survivors, made = told()
    assert made > 400
    assert 100 * (made - len(survivors)) >= LEAST_NOTICED_PERCENT * made, survivors


@pytest.mark.slow
def test_a_guard_that_is_dropped_is_noticed() -> None:
    survivors, made = guards_told()
    assert made > 100
    assert 100 * (made - len(survivors)) >= LEAST_NOTICED_PERCENT * made, survivors


def test_only_what_may_be_an_error_explains() -> None:
    assert [c.id for c in RECORDS.values() if c.explains and c.severity is not Severity.ERROR] == []
