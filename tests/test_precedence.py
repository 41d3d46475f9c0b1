"""The order of causes decides as its witnesses say."""

from __future__ import annotations

from each_row import each
from judging import judged
from precedence_witnesses import Witness, answer, witnesses

from gpusetup.findings.record import RECORDS
from gpusetup.model.finding import Severity


@each("name, witness", witnesses)
def test_a_witness_has_this_root_and_these_consequences(name: str, witness: Witness) -> None:
    diagnosis = judged(witness.machine)
    assert answer(diagnosis.findings) == (witness.root, witness.wrong)
    assert next((f.id for f in diagnosis.findings if f.root), None) == witness.root


def test_only_what_may_be_an_error_explains() -> None:
    assert [c.id for c in RECORDS.values() if c.explains and c.severity is not Severity.ERROR] == []
