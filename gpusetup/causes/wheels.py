"""Why an installer found no wheel, could not download it or may not install it, and what else is wrong
with the Python environment.

Sources, where a record names no other: pip documentation; messages of pip's sources; the wheels and
indexes of torch, read for the catalog; Python documentation, venv.
"""

from __future__ import annotations

import sys

from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import checks, facts, proofs
from gpusetup.evidence.context import RuleContext
from gpusetup.fixes import paste
from gpusetup.messages.fragments import HOST
from gpusetup.messages.row import says
from gpusetup.model.finding import Fix, Severity

AT_WORK = r"(?:\b(?:pip|uv|conda|poetry)\b|\.whl\b|Installing collected|Collecting )"
"""Words that show that an installer was running, because other programs unzip files too."""


def _as_chosen(context: RuleContext, text: str) -> Fix:
    """Install with gpusetup, with the installers' own commands as alternatives."""
    commands = paste.install_commands(context)
    return Fix(text=text, commands=commands, alternatives=paste.by_hand(context))


USUAL_PYTHON, NEXT_PYTHON = "3.12", "3.13"
"""The Python release for which nearly every package has wheels, and the one after it."""


def _create_64_bit_environment(context: RuleContext, _text: str) -> Fix:
    """Create an environment with a Python for which torch has wheels, and install torch there."""
    installed = context.snapshot.python.version or ""
    # uv would use a 32-bit Python of the same release again, for which there are no wheels.
    python = NEXT_PYTHON if installed.startswith(f"{USUAL_PYTHON}.") else USUAL_PYTHON
    text = f"Create an environment with a 64-bit Python {python} and install there"
    return paste.with_python(context, python, text)


REQUIREMENT = r"(?P<requirement>(?<![\w.-])[A-Za-z][\w.-]*(?:[=<>!~]=?[^\s,]{1,60}(?:,[=<>!~]=?[^\s,]{1,40})?)?)"
"""A distribution with its version range, as uv writes it: `torch>=2.0.1,<=2.4.1`."""


STDLIB = rf"(?:{'|'.join(sorted(sys.stdlib_module_names, reverse=True))})"
"""Python's own modules, a longer name before its beginning. A file with such a name in the folder hides
the real module."""

CAUSES = (
    Cause(
        "download-hash-mismatch",
        certain_if=proofs.message_states_it,
        title="The downloaded file does not match its hash: {file}",
        means="A proxy, a full disk or a mirror cut off or changed the download, or your lock file "
        "contains the hash of a different build.",
        text="Clear the installer's cache, then run the same installation again, on another "
        "network if you use a proxy or mirror. Do not turn the hash check off",
        # Source: messages of uv and pip.
        commands=("pip cache purge",),
        says=(
            r"DO NOT MATCH THE HASHES(?:.{0,260}?(?P<file>[\w.%+-]+\.whl))?",
            says(r"Hash mismatch for `?(?P<file>[\w.=+-]+)", example="error: Hash mismatch for `torch==2.6.0+cu124`"),
            says(r"CondaVerificationError: The package for (?P<file>[\w.-]{2,60}) located at", example="CondaVerificationError: The package for pytorch located at /x/pkgs/pytorch-2.1.0 appears to be corrupted."),
            says(rf"{AT_WORK}.{{0,900}}?BadZipFile: Bad CRC-32|BadZipFile: Bad CRC-32 for file '(?:torch|nvidia|triton)", example="zipfile.BadZipFile: Bad CRC-32 for file 'torch/lib/libtorch_cuda.so'"),
            says(rf"{AT_WORK}.{{0,900}}?BadZipFile: File is not a zip file", example="$ uv pip install x.whl\nzipfile.BadZipFile: File is not a zip file"),
        ),
    ),
    Cause(
        "download-network-error",
        title="{host} cannot be reached or verified",
        means="TLS, a proxy, DNS, a wrong clock or a slow connection stopped the download.",
        text="Check the network, and this machine's clock and certificates (if a proxy decrypts "
        "TLS, set PIP_CERT or SSL_CERT_FILE to its certificate). Check HTTPS_PROXY, HTTP_PROXY and "
        "NO_PROXY. If the connection is slow, allow more time (PIP_DEFAULT_TIMEOUT=120 for pip, "
        "UV_HTTP_TIMEOUT=300 for uv). To use a mirror instead: `gpusetup install --index URL`",
        # Source: messages of pip, urllib3, uv and conda.
        explains=("python-no-wheel",),
        look=("curl -sSI https://{host}/",),
        says=(
            rf"HTTPSConnectionPool\(host='{HOST}', port=\d+\): (?P<how>Max retries|Read timed out)",
            says(r"CondaHTTPError: HTTP (?P<how>\w+)", example="CondaHTTPError: HTTP 000 CONNECTION FAILED for url"),
            says(r"CERTIFICATE_VERIFY_FAILED|certificate verify failed|invalid peer certificate|CondaSSLError", how="certificate", example="SSLError(SSLCertVerificationError(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate in certificate chain'))"),
            says(rf"(?:ReadTimeoutError|ConnectTimeoutError|ReadTimeout)\W{{0,3}}(?:HTTPS?ConnectionPool\(host='{HOST}')?.{{0,240}}?timed out", how="timeout"),
            says(rf"error sending request for url \(https?://{HOST}", how="connection", example="error: error sending request for url (https://index.example.org/simple/torch/)"),
            says(r"ProxyError|Cannot connect to proxy|Tunnel connection failed|wrong_version_number", example="WARNING: Retrying after ProxyError('Cannot connect to proxy.', OSError('Tunnel connection failed: 407'))", how="proxy"),
            says(r"Temporary failure in name resolution|NameResolutionError|getaddrinfo failed|dns error", example="Temporary failure in name resolution", how="name"),
            says(r"Connection broken: \w*(?:IncompleteRead|ConnectionReset)\w*|IncompleteRead\(|<urlopen error \[(?:Errno|WinError) (?:104|110|111|10054|10060|10061)\]|Connection reset by peer.{0,200}(?:pip|https?://|whl|Retry)|(?:Retry|pip).{0,200}Connection reset by peer", example="error: <urlopen error [Errno 104] Connection reset by peer>", how="cut"),
            says(rf"Failed to fetch: `https?://{HOST}", unless=r"40[34] ", example="error: Failed to fetch: `https://index.example.org/simple/numpy/`"),
        ),
    ),
    Cause(
        "resolver-conflict",
        certain_if=proofs.message_states_it,
        title="The requirements contradict each other, so no set of versions satisfies all of them",
        text="Relax the version pin that the message mentions last. Install torch, torchvision, "
        "torchaudio and triton from one index, and let torch choose the versions of its "
        "dependencies, as the command below does",
        # Source: messages of uv, pip, conda and pixi.
        fix_for=_as_chosen,
        says=(
            r"no solution found when resolving|resolutionimpossible|because there are no viable options|contain conflicting urls for package|because these package versions have conflicting dependencies|the conflict is caused by:|unsatisfiableerror|version solving failed|found conflicts!|encountered problems while solving",
            says("for which no candidates were found", unless=r"__cuda"),
        ),
    ),
    Cause(
        "python-32bit",
        check=CheckCommand(checks.PYTHON_BITS, "3.12.4 (tags/v3.12.4:8e8a4ba, Jun  6 2024, 19:11:27) [MSC v.1940 32 bit (Intel)] 32"),
        certain_if=proofs.message_states_it,
        title="This Python is a 32-bit build, and torch has no wheels for 32-bit Python",
        text="Create an environment with a 64-bit Python",
        fix_for=_create_64_bit_environment,
    ),
    Cause(
        "python-no-wheel",
        by_check=True,
        refuted_by=(Refutation(facts.catalog_has_torch_for_this_python, "wrong-index"),),
        title="{asked} has no wheel for this Python",
        plain="torch has no wheel for this Python",
        means="Each torch release has wheels for only a few Python versions.",
        text="Create an environment with a different Python version",
        fix_for=_create_64_bit_environment,
        says=(
            says(rf"{REQUIREMENT} has no wheels with a matching Python(?: \w+)? (?:ABI|implementation|version) tag(?: \(e\.g\., `?(?P<python>cp\d+t?)`?\))?", example="hint: torch==1.13.1 has no wheels with a matching Python implementation tag"),
            says(rf"{REQUIREMENT} is unusable because no wheels are available with a matching Python", example="Because torch==2.0.0 is unusable because no wheels are available with a matching Python implementation"),
            says(r"You(?:'re using| require) (?:CPython )?(?P<python>\d\.\d+)\S* \(`cp\d+\w*`\), but (?:we only found wheels for )?`?(?P<requirement>\w+)`?", example="hint: You require CPython 3.14 (`cp314`), but we only found wheels for `torch` (v2.8.0) with the following Python ABI tags: `cp312`"),
            says(r"(?P<requirement>[\w.-]+)'? requires a different Python: (?P<python>\d\.\d+)[\d.]* not in", example="ERROR: Package 'vllm' requires a different Python: 3.13.1 not in '<3.13,>=3.9'"),
        ),
    ),
    Cause(
        "no-wheel-for-platform",
        by_check=True,
        certain_if=proofs.message_states_it,
        title="{asked} has no wheel for {what}",
        plain="torch has no wheel for this system",
        means="torch has wheels for 64-bit Linux with glibc, for Windows, and for macOS on Apple "
        "silicon.",
        text="Use a system for which torch has wheels, for example an image with glibc (`FROM "
        "python:3.12-slim` instead of Alpine) on x86_64 or 64-bit ARM (aarch64). For an Intel Mac, "
        "torch 2.2.2 is the last release (Python 3.12 or older, numpy<2). Windows on ARM has the "
        "CPU build only: use a 64-bit x86 Python, or the index "
        "https://download.pytorch.org/whl/cpu",
        asks=(checks.PYTHON_BITS,),
        says=(
            says(rf"{REQUIREMENT} (?:is unusable because no wheels are available with a matching platform|has no wheels with a matching platform tag(?: \(e\.g\., `?(?P<platform>\w+)`?\))?)", "matching platform", example="hint: torch==2.7.0 has no wheels with a matching platform tag (e.g., `macosx_14_0_x86_64`)"),
            says(r"(?:Distribution `?(?P<requirement>[\w.-]+==[\w.+]+)(?: @ registry\+(?P<index>https?://download\.pytorch\.org/[\w./-]{1,60}))?[^`]{0,200}?`? )?can't be installed because it doesn't have a source distribution or wheel for the current platform", "wheel for the current platform", example="error: Distribution `pillow==11.3.0 @ registry+https://download.pytorch.org/whl/cu128` can't be installed because it doesn't have a source distribution or wheel for the current platform"),
            says(r"found distribution (?P<requirement>[\w.-]+==[\w.+]+).{0,160}? with neither wheels nor source distribution", example="error: found distribution torchaudio==2.0.0 @ registry+https://download.pytorch.org/whl/cu121 with neither wheels nor source distribution"),
            r"You're on (?P<platform>[^,]{3,60}), but `(?P<requirement>[\w.-]+)`",
            says(r"Unable to find installation candidates for (?P<requirement>torch\w* \([\w.+]+\))", what="Python or system", example="Unable to find installation candidates for torch (2.1.0+cu118)"),
        ),
    ),
    Cause(
        "glibc-too-old",
        certain_if=proofs.message_states_it,
        title="The system's glibc is too old: version {needed} is needed",
        plain="The system's glibc is too old for the packages here",
        means="torch's wheels need glibc 2.28 since torch 2.6.",
        text="Use a newer distribution, or a container with one. Do not replace the system's glibc. "
        "If a package other than torch needs the newer glibc, install a release of that package for "
        "older systems",
        # Source: PEP 600; the wheels and indexes of torch, read for the catalog.
        explains=("torch-missing", "torch-half-installed", "library-missing"),
        says=(r"(?:(?P<library>[\w.+-]+\.so[.\d]*): )?version [`'\"]?GLIBC_(?P<needed>2\.\d+)\W{0,2} ?not found(?: \(required by (?P<by>[^()\s]{1,200})\))?",),
    ),
    Cause(
        "wrong-index",
        by_check=True,
        plain="The index, or a version's label such as `+cu121`, does not exist",
        title="{asked} does not exist in the index that the installer searched",
        means="Versions with a label such as +cu128 are only in PyTorch's index, which does not "
        "have every label for every release.",
        text="Use the index that `gpusetup resolve` shows",
        asks=(checks.PYTHON_BITS,),
        formerly=("package-not-found",),
        says=(
            says(r"(?P<status>40[34])\b.{0,60}?(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})", example="ERROR: HTTP error 403 while getting https://download.pytorch.org/whl/cu999/torch/"),
            says(r"(?P<requirement>torch\w*) was not found in the package registry", example="Because torch was not found in the package registry and you require torch, we can conclude"),
            says(r"there is no version of (?P<requirement>torch\w*(?:\[\w+\])?==[\w.]+\+\w+(?:\.\w+)*)", example="Because there is no version of torch==2.9.0+cu126 and you require torch==2.9.0+cu126"),
            says(r"ERROR: Invalid requirement: '(?P<requirement>torch[^']{1,60})'", example="ERROR: Invalid requirement: 'torch==2.0.0+cu118,' Hint: = is not a valid operator; an invalid wheel"),
            says(r"(?P<index>https?://download\.pytorch\.org/whl/[\w./-]{1,60})\W{0,3}.{0,40}?\b(?P<status>40[34])\b", example="error: Request failed: https://download.pytorch.org/whl/cu120/torch/ - HTTP 403 Forbidden"),
        ),
    ),
    Cause(
        "conda-cuda-virtual-missing",
        certain_if=proofs.message_states_it,
        title="conda detects no CUDA driver here (the virtual package __cuda is missing), but the "
        "build requires one",
        means="conda adds __cuda if it detects a driver. Otherwise it chooses CPU builds.",
        text="Without a GPU (an image build, a login node), set CONDA_OVERRIDE_CUDA to the CUDA "
        "version of the build (`export CONDA_OVERRIDE_CUDA=12.4`). Otherwise install the driver",
        # Source: conda documentation, virtual packages.
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
        text="You do not need conda: gpusetup creates an environment with uv. If you want conda, "
        "install Miniforge (https://conda-forge.org/download/), then open its prompt (Windows) or "
        "a new shell",
        # Source: conda-forge, Miniforge's README.
        commands=("gpusetup install --venv .venv",),
        says=(says(r"'conda' is not recognized|The term 'conda'|\bconda: (?:command )?not found|command not found: conda(?![\w-])", example="'conda' is not recognized as an internal or external command,"),),
    ),
    Cause(
        "externally-managed",
        certain_if=proofs.message_states_it,
        check=CheckCommand("python3 -c \"import sysconfig; print(sysconfig.get_path('stdlib'))\" | xargs ls | grep EXTERNALLY", "EXTERNALLY-MANAGED"),
        title="Installers may not change this Python, which belongs to the system or another user",
        means="The distribution's own programs use this Python's packages, and pip could break "
        "those programs. In other cases, the folder belongs to another user, or a running program "
        "uses a file in it.",
        text="Create your own environment and install there. If the environment is already yours, "
        "close the programs that use its files",
        # Source: PEP 668.
        commands=lambda context: (paste.into_new_environment(context),),
        says=(
            "externally-managed-environment",
            says(r"\[Errno 13\] Permission denied: '(?P<path>[^']{0,160}(?:site|dist)-packages[^']{0,160})'", example="ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/python3/dist-packages/numpy'"),
            says(r"Cannot uninstall '?(?P<name>[\w.-]+)'?.{0,40}distutils installed project", example="ERROR: Cannot uninstall 'PyYAML'. It is a distutils installed project and thus we cannot accurately determine"),
            says(r"Cannot uninstall (?P<name>[\w.-]+) [\w.+!]{1,40}, RECORD file not found\. Hint: The package was installed by (?P<by>\w+)", example="ERROR: Cannot uninstall torch 2.3.0, RECORD file not found. Hint: The package was installed by conda."),
            says(r"no RECORD file was found for (?P<name>[\w.-]*\w).{1,12}hint: The package was installed by (?P<by>\w+)", example="error: uninstall-no-record-file\n\n× Cannot uninstall torch 2.3.0\n╰─> The package's contents are unknown: no RECORD file was found for torch.\n\nhint: The package was installed by conda. You should check if it can uninstall the package."),
            says(r"\[WinError 5\].{0,60}'(?P<path>[^']{0,160}site-packages[^']{0,160})'", example="ERROR: [WinError 5] Access is denied: 'C:\\venv\\Lib\\site-packages\\torch\\lib\\c10.dll'"),
        ),
        cases=(
            Message(
                having={"name": ""},
                title="pip cannot remove {name} because conda or the distribution installed it",
                means="pip cannot remove a package without a list of its files (RECORD).",
                text="Remove it with the tool that installed it (`conda remove`, which calls torch "
                "`pytorch`, or the distribution's package manager), or create a new environment",
                # Source: messages of pip's sources, of releases 20 to 26.
                commands=("gpusetup install --venv .venv",),
            ),
        ),
        formerly=("site-not-writable", "installed-by-two"),
    ),
    Cause(
        "no-target",
        severity=Severity.NOTE,
        title="gpusetup found no Python environment, so it did not look for torch",
        text="Activate an environment, or pass its Python with `--python PATH`",
        events=("stale-environment",),
        cases=(
            Message(
                having={"variable": ""},
                title="{variable} is set to {path}, which is not an environment",
                plain="The activated environment no longer exists",
                text="doctor checked another Python instead. Activate your environment again",
                only=Severity.WARNING,
            ),
        ),
        formerly=("stale-environment",),
    ),
    Cause(
        "module-shadowed",
        certain_if=facts.failing_file_is_in_a_checkout,
        check=CheckCommand('python -c "import torch; print(torch.__file__)"', "/home/me/project/torch.py"),
        title="{path} hides the module {module} from programs started in this folder",
        plain="A local file hides a module from programs started in this folder",
        text="Python looks in the working folder first. Rename that file or folder (and delete its "
        "__pycache__), or start Python in another folder. If a package hides one of Python's own "
        "modules (enum34, typing, dataclasses), uninstall it",
        # Source: Python documentation, sys.path.
        asks=('python -c "import torch; print(torch.__file__, torch.__path__)"',),
        says=(
            rf"partially initialized module '(?P<module>{STDLIB})(?:\.\w+)*'.{{0,80}}\(most likely due to a circular import\)(?: \((?P<path>[^()]{{1,160}}\.py)\))?",
            says(rf"cannot import name '\w+' from '(?P<module>{STDLIB})' \((?P<path>(?![^()]*[/\\](?:lib|Lib|lib64)[/\\])[^()]{{1,160}}[/\\](?P=module)\.py)\)", example="ImportError: cannot import name 'Queue' from 'multiprocessing' (/home/u/proj/multiprocessing.py)"),
            says(r"consider renaming '(?P<path>[^']{1,200}?(?P<module>\w+)\.py)' (?:since|if) it has the same name", example="AttributeError: module 'random' has no attribute 'randint' (consider renaming '/home/u/random.py' since it has the same name as the standard library module named 'random')"),
            says(r"loaded the `torch/_C` folder of the PyTorch repository|cannot import name '\w+' from 'torch\._C' \(unknown location\)|module 'torch' has no attribute '(?:Tensor|cuda|nn|__version__|device|tensor|float32|zeros|no_grad)'", example="ImportError: cannot import name '_initExtension' from 'torch._C' (unknown location)", module="torch"),
            says(r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?No module named ['\"]?(?:torch\.)?_C\b", module="torch", example="File \"/home/u/pytorch/torch/__init__.py\", line 237, in <module>\nModuleNotFoundError: No module named 'torch._C'"),
            says(r"importing PyTorch from a clone of the git repo: {1,4}(?P<path>[^\s]{1,160})?", module="torch", example="ImportError: You are importing PyTorch from a clone of the git repo: /home/u/pytorch"),
            # A frame of `/home/me/vllm/vllm/a.py`: the package's folder in the folder of its project.
            says(r"File \"[^\"]{0,160}/(?P<package>\w{2,40})/(?P=package)/(?![^\"]*(?:site|dist)-packages)[^\"]{1,120}\.py\".{0,1000}?No module named ['\"]?(?P=package)\._\w+", "no module named"),
        ),
        cases=(
            Message(
                where=(lambda context: bool(facts.failing_file_is_in_a_checkout(context)),),
                title="{fact}",
                plain="Python imports a source folder instead of the installed package",
                means="Python looks in the script's folder first (with -c, -m or a prompt: in the "
                "working folder). A source folder does not contain the wheel's compiled files.",
                text="Start your script from another folder, or build the checkout (`pip install "
                "--no-build-isolation -e .`). Reinstalling does not help",
            ),
        ),
        formerly=("source-checkout-imported",),
    ),
)  # fmt: skip
