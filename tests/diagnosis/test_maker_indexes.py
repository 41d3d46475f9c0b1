"""Installers that found no ROCm or XPU build where they looked: the answer stays with the maker."""

from __future__ import annotations

from each_row import each

from gpusetup.api import read_report
from gpusetup.model.documents import DoctorAnswer
from gpusetup.model.finding import command_lines

WHL = "https://download.pytorch.org/whl"


def refused(requirement: str, index: str, versions: str) -> str:
    """pip's output for a requirement that an index cannot meet."""
    return (
        f"Looking in indexes: {WHL}/{index}\nERROR: Could not find a version that satisfies the "
        f"requirement {requirement} (from versions: {versions})\n"
        f"ERROR: No matching distribution found for {requirement}"
    )


def main_fix(answer: DoctorAnswer) -> str:
    """The main finding's fix: its sentence and its own commands, without the alternatives."""
    fix = answer.findings[0].fix
    assert fix is not None
    return "\n".join((fix.text, *fix.commands))


LOOKUPS = (
    # the text, the cause, words of the fix
    (
        "RX 6650 XT on Linux\n"
        + refused("torch==2.4.1", "rocm5.6", "2.2.0+rocm5.6, 2.2.1+rocm5.6, 2.2.2+rocm5.6"),
        "wrong-index",
        ("rocm6.0 and rocm6.1", "torch==2.4.1", "whl/rocm6.1", "GFX_VERSION=10.3.0"),
    ),
    # No index has this release with kernels for the card.
    (
        "RX 9070 XT, Ubuntu\n"
        + refused("torch==2.5.1", "rocm6.4", "2.8.0+rocm6.4, 2.9.0+rocm6.4"),
        "wrong-index",
        ("without kernels for gfx1201", "whl/rocm7.2"),
    ),
    (
        "Arc A770, Ubuntu 24.04\n" + refused("torch==2.4.0", "xpu", "2.6.0+xpu, 2.7.0+xpu"),
        "wrong-index",
        ("no XPU build of torch 2.4.0", "whl/xpu"),
    ),
    # The index has the release, but only for older Pythons.
    (
        "RX 7900 XTX, Linux, Python 3.14.0\n" + refused("torch==2.4.1", "rocm6.1", "none"),
        "python-no-wheel",
        ("--index-url https://download.pytorch.org/whl/rocm6.1",),
    ),
    (
        "macOS 13.6 on an Intel MacBook Pro 2019\n" + refused("torch", "rocm5.6", "none"),
        "no-wheel-for-platform",
        ("no ROCm builds for macOS", "2.2.2"),
    ),
    (
        "MacBook Air M3, macOS 15\n" + refused("torch==2.8.0", "xpu", "none"),
        "no-wheel-for-platform",
        ("no XPU builds for macOS", '"mps"'),
    ),
    (
        "Windows 11, RX 9070 XT\n" + refused("torch==2.9.1", "rocm6.4", "none"),
        "no-wheel-for-platform",
        ("AMD's own wheels", "device-gfx1201"),
    ),
)  # fmt: skip


@each("text, cause, words", LOOKUPS)
def test_an_index_of_a_maker_leads_to_the_same_makers_builds(
    text: str, cause: str, words: tuple[str, ...]
) -> None:
    answer = read_report(text)
    assert answer.cause == cause
    fix = main_fix(answer)
    for word in words:
        assert word in fix
    assert "gpusetup install" not in fix
    assert "whl/cu" not in fix and "whl/cpu" not in fix


def test_the_cpu_build_is_only_the_alternative_on_windows_with_an_amd_gpu() -> None:
    text = "Windows 11, RX 9070 XT\n" + refused("torch==2.9.1", "rocm6.4", "none")
    fix = read_report(text).findings[0].fix
    assert fix is not None
    assert any("--backend cpu" in line for line in command_lines(fix))
    assert not any("--backend cpu" in line for line in fix.commands)
