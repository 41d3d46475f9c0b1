"""Reading types from several threads at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

NEW_TYPES = """
import sys, threading
import msgspec
from gpusetup.model.codec import from_json

NAMES = [f"field{n}" for n in range(60)]
sys.setswitchinterval(1e-6)

def read(kind, start):
    start.wait()
    assert from_json(b'{"field1": {"field2": 3}}', kind, what="x").field1.field2 == 3

for n in range(20):
    fields = [(name, "int | None", None) for name in NAMES]
    part = msgspec.defstruct(f"Part{n}", fields, namespace={"__module__": "builtins"})
    whole = msgspec.defstruct(f"Whole{n}", [(name, part | None, None) for name in NAMES])
    start = threading.Barrier(6)
    threads = [threading.Thread(target=read, args=(whole, start)) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
print("done")
"""


def test_threads_read_one_new_type_at_the_same_time() -> None:
    """Without a lock msgspec ends the whole process here (a crash, no exception)."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", NEW_TYPES], cwd=root, capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
