#!/usr/bin/env python3
"""Would the tests notice another order of causes, or a rule without one of its guards?

python scripts/mutants_precedence.py     lists the changes that no recorded machine or text notices

Each edge is dropped, each two neighbours are exchanged, each guard answers always yes and always
no, and each table of events that silence a rule loses each of its rows.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from precedence_guards import guards_told  # noqa: E402
from precedence_witnesses import told, witnesses  # noqa: E402


def main() -> int:
    of_the_order, orders = told()
    of_guards, guards = guards_told()
    survivors, made = of_the_order + of_guards, orders + guards
    for what in of_the_order:
        print(f"survives: not {what}")
    for what in of_guards:
        print(f"survives: {what}")
    print(f"{len(witnesses())} witnesses")
    print(f"order: noticed {orders - len(of_the_order)} of {orders}")
    print(f"guards: noticed {guards - len(of_guards)} of {guards}")
    print(f"noticed {made - len(survivors)} of {made}")
    return 0 if 10 * len(survivors) <= made else 1


if __name__ == "__main__":
    sys.exit(main())
