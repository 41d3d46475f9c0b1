"""What stands in for nodes: a Python that is proven, and one that gives recorded answers."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

OURS = ("_virtualenv", "__editable__", "_editable", "torch-", "torch.")


def cuda_environment(place: Path) -> Path:
    """An environment whose torch is this one, but says that it was built for CUDA 13.0."""
    subprocess.run((sys.executable, "-m", "venv", "--without-pip", str(place)), check=True)
    real = Path(sysconfig.get_path("purelib"))
    packages = place / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    for entry in real.iterdir():
        if entry.name != "torch" and not entry.name.startswith(OURS):
            (packages / entry.name).symlink_to(entry)
    (packages / "torch").mkdir()
    for entry in (real / "torch").iterdir():
        if entry.name != "version.py":
            (packages / "torch" / entry.name).symlink_to(entry)
    said = (real / "torch" / "version.py").read_text(encoding="utf-8")
    said = said.replace("+cpu", "+cu130").replace(
        "Optional[str] = None", "Optional[str] = '13.0'", 1
    )
    (packages / "torch" / "version.py").write_text(said, encoding="utf-8")
    _told(next(real.glob("torch-*.dist-info")), packages)
    return place / "bin" / "python"


def _told(metadata: Path, packages: Path) -> None:
    """The wheel's own metadata under the other version."""
    other = packages / metadata.name.replace("+cpu", "+cu130")
    other.mkdir()
    for name in ("METADATA", "WHEEL", "RECORD"):
        text = (metadata / name).read_text(encoding="utf-8")
        (other / name).write_text(text.replace("+cpu", "+cu130"), encoding="utf-8")


ANSWERS = """\
#!/bin/sh
# -I -m gpusetup COMMAND ...
here={folder}/$NODE
said=$4
test "$said" = fleet && said=node-check
test -f "$here/hang" && [ "$(cat "$here/hang")" = "$said" ] && exec sleep 600
test -f "$here/noise" && cat "$here/noise"
test -f "$here/$said" && cat "$here/$said"
exit 0
"""


def recorded_python(folder: Path) -> Path:
    """A program that answers `-I -m gpusetup COMMAND` with the file `folder/$NODE/COMMAND`."""
    program = folder / "python"
    program.write_text(ANSWERS.format(folder=folder), encoding="utf-8")
    program.chmod(0o755)
    return program


def record(folder: Path, node: str, answers: Mapping[str, Any]) -> Path:
    """What a node answers, by command; text as it is, all else as JSON."""
    here = folder / node
    here.mkdir(exist_ok=True)
    for name, answer in answers.items():
        text = answer if isinstance(answer, str) else json.dumps(answer, indent=1)
        (here / name).write_text(text + "\n", encoding="utf-8")
    return here
