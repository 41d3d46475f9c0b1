"""Causes in the Python environment: its pip, its manager, and files that hide its packages."""

from __future__ import annotations

import re
import sys

from gpusetup.causes.record import Cause, CheckCommand
from gpusetup.evidence import facts, proofs
from gpusetup.evidence.context import RuleContext, events
from gpusetup.fixes import paste
from gpusetup.messages.row import says
from gpusetup.model.finding import Severity
from gpusetup.model.shell import Lines


def _for_the_target(context: RuleContext) -> Lines:
    """The command that sets CONDA_OVERRIDE_CUDA. It tells conda the CUDA version of a host whose
    driver conda cannot query."""
    missing = events(context, "conda-cuda-virtual-missing")[0]
    version_needed = re.search(r"\d+(\.\d+)?", missing.values.get("needed", ""))
    cuda = version_needed[0] if version_needed else (context.driver.cuda or "12")
    return (paste.setting(context, "CONDA_OVERRIDE_CUDA", cuda),)


STDLIB = "(?:" + "|".join(sorted(sys.stdlib_module_names, key=len, reverse=True)) + ")"
"""Python's own modules, the longest names first. A file with such a name in the working folder hides
the real module."""

CAUSES = (
    Cause(
        "conda-cuda-virtual-missing",
        certain_if=proofs.message_states_it,
        title="conda sees no CUDA driver here (the virtual package __cuda is missing), but the "
        "build needs one",
        means="Without the virtual package __cuda, which shows the driver, conda chooses CPU "
        "builds. conda may also run on a different machine from the one that computes.",
        text="On a machine without a GPU (an image build, a login node), set CONDA_OVERRIDE_CUDA "
        "to the CUDA version of the machine that will compute. Otherwise install the driver",
        # Source: conda documentation, virtual packages.
        commands=_for_the_target,
        says=(
            r"(?P<needed>__cuda[\d.*<>=|, ]{0,14}),? which is missing on the system",
            says(r"nothing provides (?:requested )?(?P<needed>__cuda(?: \S{1,12})?) needed by", example="nothing provides __cuda needed by pytorch-gpu-2.1.0"),
            says(r"(?P<needed>__cuda(?: ?[\d.*<>=]{1,10})?)[ ,`'\"]{1,3}(?:which |that )?(?:is missing on the system|is missing|cannot be installed)", example="pytorch requires __cuda >=12, which is missing on the system"),
            says(r"(?:virtual package|no candidates were found for|feature:/?\S{0,20}::) ?[`'\"]?(?P<needed>__cuda(?!==\d+\.\d+=0)(?: ?[=<>]{1,2} ?[\w.*]+)?)|(?P<needed2>__cuda(?: [\w.*<>=]{1,12})?), for which no candidates were found", example="the virtual package __cuda >=12 does not hold"),
            r"MatchSpec\(\"(?P<needed>__cuda\S{0,12})\"\)",
        ),
    ),
    Cause(
        "pip-missing",
        title="The environment has no pip, so `pip install` would install elsewhere",
        text="Use uv (as gpusetup does), or install pip",
        # Source: Python documentation, venv.
        commands=lambda context: (
            paste.command(context, "uv", "pip", "install", "--python", paste.python(context), "pip"),
        ),
        says=(
            r"No module named ['\"]?pip\b['\"]?(?!\.)",
            says(r"\bpip3?: (?:command )?not found|command not found: pip3?\b|'pip3?' is not recognized", example="bash: pip: command not found"),
        ),
    ),
    Cause(
        "conda-missing",
        severity=Severity.WARNING,
        title="conda is not installed, or not on PATH",
        means="You probably follow a guide that uses conda.",
        text="You do not need conda: gpusetup creates an environment with uv. If you want conda, "
        "install Miniforge (https://conda-forge.org/download/), then open its Miniforge Prompt "
        "(Windows) or a new shell",
        # Source: conda-forge, Miniforge's README.
        commands=("gpusetup install --venv .venv",),
        says=(says(r"'conda' is not recognized|The term 'conda'|\bconda: (?:command )?not found|command not found: conda(?![\w-])", example="'conda' is not recognized as an internal or external command,"),),
    ),
    Cause(
        "externally-managed",
        certain_if=proofs.message_states_it,
        check=CheckCommand("python3 -c \"import sysconfig; print(sysconfig.get_path('stdlib'))\" | xargs ls | grep EXTERNALLY", "EXTERNALLY-MANAGED"),
        title="This Python belongs to the operating system or to another user: the installer may not "
        "change it",
        means="The distribution's own programs use its packages, and pip would break them; or its "
        "folder is not yours, or a running program uses its files.",
        text="Create your own environment and install there. If it is yours, close the programs that "
        "use its files",
        # Source: PEP 668.
        commands=lambda context: (paste.into_new_environment(context),),
        says=(
            "externally-managed-environment",
            says(r"\[Errno 13\] Permission denied: '(?P<path>[^']{0,160}(?:site|dist)-packages[^']{0,160})'", example="ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/python3/dist-packages/numpy'"),
            says(r"\[WinError 5\].{0,60}'(?P<path>[^']{0,160}site-packages[^']{0,160})'", example="ERROR: [WinError 5] Access is denied: 'C:\\venv\\Lib\\site-packages\\torch\\lib\\c10.dll'"),
        ),
        formerly=("site-not-writable",),
    ),
    Cause(
        "no-target",
        by_check=True,
        severity=Severity.NOTE,
        title="gpusetup found no Python environment, so it did not look for torch",
        means="gpusetup ignores the environment that uvx or pipx created for gpusetup "
        "itself.",
        text="Activate an environment, or name one with `--python PATH`",
    ),
    Cause(
        "stale-environment",
        severity=Severity.WARNING,
        title="{variable} is set to {path}, which is not an environment",
        plain="The activated environment no longer exists",
        text="doctor checked another Python instead. Activate your environment again",
        # Source: Python documentation, venv.
    ),
    Cause(
        "module-shadowed",
        certain_if=facts.failing_file_is_in_a_checkout,
        check=CheckCommand('python -c "import torch; print(torch.__file__)"', "/home/me/project/torch.py"),
        title="{path} hides the module {module} from programs started in this folder",
        plain="A local file hides a module from programs started in this folder",
        means="Python looks in the working folder first.",
        text="Rename that file or folder (and delete its __pycache__), or start Python in another folder. Uninstall a package that hides "
        "a module of Python (enum34, typing, dataclasses)",
        # Source: Python documentation, sys.path.
        explains=(
            "torch-sees-no-gpu", "torch-import-failed", "gpu-check-failed", "cuda-lib-missing",
            "torch-missing", "torch-half-installed",
        ),
        asks=('python -c "import torch; print(torch.__file__, torch.__path__)"',),
        says=(
            rf"partially initialized module '(?P<module>{STDLIB})(?:\.\w+)*'.{{0,80}}\(most likely due to a circular import\)(?: \((?P<path>[^()]{{1,160}}\.py)\))?",
            says(rf"cannot import name '\w+' from '(?P<module>{STDLIB})' \((?P<path>(?![^()]*[/\\](?:lib|Lib|lib64)[/\\])[^()]{{1,160}}[/\\](?P=module)\.py)\)", example="ImportError: cannot import name 'Queue' from 'multiprocessing' (/home/u/proj/multiprocessing.py)"),
            says(r"consider renaming '(?P<path>[^']{1,200}?(?P<module>\w+)\.py)' (?:since|if) it has the same name", example="AttributeError: module 'random' has no attribute 'randint' (consider renaming '/home/u/random.py' since it has the same name as the standard library module named 'random')"),
            says(r"loaded the `torch/_C` folder of the PyTorch repository|cannot import name '\w+' from 'torch\._C' \(unknown location\)|module 'torch' has no attribute '(?:Tensor|cuda|nn|__version__|device|tensor|float32|zeros|no_grad)'", example="ImportError: cannot import name '_initExtension' from 'torch._C' (unknown location)", module="torch"),
            says(r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?No module named ['\"]?(?:torch\.)?_C\b", module="torch", example="File \"/home/u/pytorch/torch/__init__.py\", line 237, in <module>\nModuleNotFoundError: No module named 'torch._C'"),
            says(r"importing PyTorch from a clone of the git repo: {1,4}(?P<path>[^\s]{1,160})?", module="torch", example="ImportError: You are importing PyTorch from a clone of the git repo: /home/u/pytorch"),
        ),
    ),
    Cause(
        "installed-by-two",
        certain_if=proofs.message_states_it,
        title="pip cannot remove {name}: conda or the distribution installed it",
        means="pip removes a package by its list of files (RECORD). Packages that conda or the "
        "distribution installed often lack that list.",
        text="Remove the package with the tool that installed it (`conda remove`, which calls torch "
        "`pytorch`, or the distribution's package manager), or create a new environment",
        # Source: pip documentation; messages of pip's sources, of releases 20 to 26.
        commands=("gpusetup install --venv .venv",),
        says=(
            says(r"Cannot uninstall '?(?P<name>[\w.-]+)'?.{0,40}distutils installed project", example="ERROR: Cannot uninstall 'PyYAML'. It is a distutils installed project and thus we cannot accurately determine"),
            says(r"Cannot uninstall (?P<name>[\w.-]+) [\w.+!]{1,40}, RECORD file not found\. Hint: The package was installed by (?P<by>\w+)", example="ERROR: Cannot uninstall torch 2.3.0, RECORD file not found. Hint: The package was installed by conda."),
            says(r"no RECORD file was found for (?P<name>[\w.-]*\w).{1,12}hint: The package was installed by (?P<by>\w+)", example="error: uninstall-no-record-file\n\n× Cannot uninstall torch 2.3.0\n╰─> The package's contents are unknown: no RECORD file was found for torch.\n\nhint: The package was installed by conda. You should check if it can uninstall the package."),
        ),
    ),
)  # fmt: skip
