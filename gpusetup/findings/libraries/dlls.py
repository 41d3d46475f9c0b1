"""Windows' DLLs: one that torch needs is missing, or there is no room to load them."""

from __future__ import annotations

from collections.abc import Iterator

from gpusetup.evidence.context import RuleContext, events
from gpusetup.findings import alike
from gpusetup.findings.layers import BROKEN_TORCH, Layer
from gpusetup.findings.message_rules import from_messages
from gpusetup.findings.record import Alike, Cause, Message
from gpusetup.model.finding import Finding


def _is_not_told(context: RuleContext) -> bool:
    """Whether it is no part of an extension that belongs to another torch."""
    others = events(context, "extension-abi-mismatch", "torchaudio-mismatch")
    told = {value for event in others for value in event.values.values()}
    said = events(context, "windows-dll-missing")
    return any(told.isdisjoint(event.values.values()) for event in said)


DLLS = (
    Cause(
        id="windows-dll-missing",
        place=(Layer.WHEEL, 30),
        title="Windows cannot load torch's DLLs",
        means="The Visual C++ runtime or a DLL beside it is missing or old.",
        proven_by="WinError 126, 127, 182, 193, 1114",
        not_when="windows-pagefile-too-small (1455), extension-abi-mismatch",
        way_out="The current Visual C++ runtime",
        source="Microsoft, System Error Codes; torch/__init__.py",
        explains=("torch-import-failed", "cuda-lib-missing"),
        holds=(_is_not_told,),
        message=Message(
            title="Windows cannot load {dll}: a DLL that it needs is missing or of another version",
            plain="Windows cannot load torch's DLLs: one that they need is missing",
            detail="Mostly the runtime of Visual C++ (msvcp140, vcruntime140_1), for torch 2.4.0 "
            "also libomp140.x86_64.dll; error 1114 comes from an outdated runtime too.",
            text="Install the current Visual C++ runtime (x64), then torch anew (2.4.1 or newer)",
            windows=("winget install Microsoft.VCRedist.2015+.x64",),
            then=("gpusetup install",),
            needs_root=True,
        ),
        stage="import",
        alike=(
            Alike(
                causes=("cuda-lib-missing", "extension-abi-mismatch"),
                asks='python -c "import torch"',
                unless=alike.names_a_dll,
            ),
        ),
    ),
    Cause(
        id="windows-pagefile-too-small",
        place=(Layer.WHEEL, 20),
        title="the Windows page file is too small",
        means="Every process reserves room for the CUDA DLLs.",
        proven_by="WinError 1455",
        not_when="windows-dll-missing",
        way_out="A larger page file, fewer workers",
        source="Microsoft, System Error Codes",
        explains=(
            *BROKEN_TORCH,
            "windows-dll-missing",
            "dataloader-worker-killed",
        ),
        message=Message(
            title="The Windows page file is too small to load torch's DLLs (error 1455)",
            detail="Windows reserves room for the CUDA DLLs in every process; each DataLoader "
            "worker is a process.",
            text="Let Windows manage the page file, or enlarge it on a disk with room (System, "
            "Advanced, Performance, Virtual memory), and start again; use fewer workers",
            windows=("SystemPropertiesPerformance.exe",),
            needs_root=True,
        ),
        stage="import",
    ),
)


def windows_dlls(context: RuleContext) -> Iterator[Finding]:
    yield from from_messages(context, DLLS)


RULES = (windows_dlls,)
