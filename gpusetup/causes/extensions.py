"""Compiled extensions that were built for another torch or another GPU."""

from __future__ import annotations

from gpusetup.accelerators.makers import maker_of
from gpusetup.causes import alike
from gpusetup.causes.layers import COMPANIONS
from gpusetup.causes.record import Cause, CheckCommand, Message, Refutation
from gpusetup.evidence import gpu_facts, proofs
from gpusetup.evidence.context import RuleContext, cuda_errors, events, gpus
from gpusetup.fixes import paste
from gpusetup.fixes.extension_packages import rebuild_commands, rebuild_of
from gpusetup.messages.fragments import COMPILED_MODULE, TORCH_LIBRARY, TORCH_SYMBOL
from gpusetup.messages.row import says
from gpusetup.model.machine import Events
from gpusetup.model.versions import Capability

PARTS_OF_TORCH = ("", "torch", "aten", "c10", "functorch")
"""The top-level names of torch's own modules; "" if no module is named."""


def _is_no_companions(context: RuleContext) -> bool:
    """Whether the extension is certainly not torchvision or torchaudio, which may load the same
    library."""
    if not events(context, *COMPANIONS[:2]):
        return True
    for mismatch in events(context, "extension-abi-mismatch"):
        names_a_module = set(mismatch.values) != {"library"}
        # torchvision and torchaudio also link torch's own CUDA library.
        if names_a_module or "c10_cuda" in mismatch.values["library"]:
            return True
    return False


def capabilities(context: RuleContext) -> list[Capability]:
    """The compute capabilities of the GPUs, as far as they are known."""
    return [gpu.compute_capability for gpu in gpus(context) if gpu.compute_capability]


def kernel_messages(context: RuleContext) -> Events:
    """Events that say that a kernel for the GPU is missing, in words or as error numbers of the two
    CUDA APIs."""
    return (*events(context, "no-kernel-image"), *cuda_errors(context, 8, 48, 98, 209))


def extension_of(messages: Events) -> str | None:
    """The extension that raised the error; None if it was torch itself."""
    for message in messages:
        module = message.values.get("module", "")
        package, _, _ = module.partition(".")
        if package not in PARTS_OF_TORCH:
            return module
    return None


def only_python_differs(context: RuleContext) -> bool:
    """Whether an extension was built for the running torch but for another Python."""
    for event in events(context, "extension-abi-mismatch"):
        values = event.values
        built_python, python = values.get("built_python", ""), values.get("python", "")
        same_torch = (
            values.get("built_torch", "").partition("+")[0]
            == values.get("torch", "?").partition("+")[0]
        )
        if same_torch and python and _minor(built_python) != _minor(python):
            return True
    return False


def _minor(version: str) -> str:
    """The first two numbers of a version: "3.12" of "3.12.4"."""
    return ".".join(version.split(".")[:2])


KERNEL_PACKAGES = (
    r"(?:bitsandbytes|flash_attn|xformers|sgl_kernel|vllm|sglang|aiter|apex|deepspeed|exllamav2"
    r"|causal_conv1d|mamba_ssm|torch_scatter|torch_sparse|torch_cluster|torchao|auto_gptq|gptqmodel"
    r"|awq_ext|transformer_engine|spconv|ctranslate2|onnxruntime|llama_cpp)"
)
"""The folders of packages whose compiled libraries contain kernels for GPUs."""
OF_ITS_BUILD = r"(?!cu[A-Z]|_?Py)(?=\w*(?:__device_stub__|hip|roc|cuda|cublas|nccl|gemm|quant))\w+"
"""A symbol of a package's own kernels or of a runtime, but not of NVIDIA's driver or of Python."""


CAUSES = (
    Cause(
        "extension-too-old-for-torch",
        title="The package's sources include {header}, which torch no longer has",
        means="torch 1.11 removed the THC headers; ATen and c10 replace them.",
        text="Use a newer release or a fork of the package, or build it in an "
        "environment with torch 1.10 or older",
        # Source: release notes of torch 1.11, removed headers.
        look=(alike.TORCHS_CUDA,),
        says=(
            r"(?P<header>THC/\w{2,40}\.(?:h|cuh|hpp))['\"]?: No such file",
            says(r"no suitable conversion function from \W?const at::DeprecatedTypeProperties\W{1,2} to", example='error: no suitable conversion function from "const at::DeprecatedTypeProperties" to "c10::ScalarType" exists'),
            says(r"\W(?:AT_CHECK|AT_ASSERTM?|THCState|THCudaCheck|THCudaBlas_\w+|THCCeilDiv)\W{1,3} ?was not declared in this scope", example="error: 'AT_CHECK' was not declared in this scope"),
            says(r"identifier \"(?:AT_CHECK|THCState|THCudaCheck|THCCeilDiv)\" is undefined", example='error: identifier "AT_CHECK" is undefined'),
        ),
        not_examples=(
            "error: 'my_name' was not declared in this scope",
            'error: identifier "my_name" is undefined',
        ),
    ),
    Cause(
        "gpu-too-old-for-flash-attention",
        certain_if=proofs.message_states_it,
        refuted_by=(
            Refutation(gpu_facts.gpu_is_at_least(8), "other-gpu-used", alike.TORCHS_KERNELS),
        ),
        title="FlashAttention supports {needs} GPUs and newer, but this GPU is older",
        plain="FlashAttention supports Ampere GPUs and newer, but this GPU is older",
        means="FlashAttention 2 needs an Ampere GPU (compute capability 8.0) or newer, and "
        "version 1 needs Turing (7.5) or newer.",
        text='Use torch\'s own attention instead: attn_implementation="sdpa" in transformers, '
        "flash_attn: false (or no --flash-attn) in trainers. You can uninstall flash-attn. On "
        "Turing GPUs, you can use FlashAttention 1 (`flash-attn<2`)",
        # Source: FlashAttention's README and csrc/flash_attn/flash_api.cpp.
        commands=("pip uninstall -y flash-attn",),
        says=(
            r"FlashAttention only supports (?P<needs>Turing|Ampere|Hopper) GPUs or newer",
        ),
    ),
    Cause(
        "extension-abi-mismatch",
        certain_if=proofs.releases_of_torch_differ,
        check=CheckCommand('python -c "import torch, flash_attn; print(torch.__version__)"  # ' "the extension in your traceback", "ImportError: flash_attn_2_cuda.cpython-311-x86_64-linux-gnu.so: undefined symbol: _ZN3c104cuda9SetDeviceEi"),
        title="{module} was built for a different torch from the installed one",
        means="A compiled extension, for example flash-attn, fits only the torch release and the "
        "CUDA version that it was compiled for, so updating torch breaks it.",
        text="Install the extension's release for this torch (see its compatibility table), or "
        "rebuild it against this torch",
        # Source: PyTorch documentation, C++ ABI; messages of xformers and others.
        explains=("extension-arch-mismatch",),
        where=(_is_no_companions,),
        commands=rebuild_of("extension-abi-mismatch"),
        look=(alike.TORCHS_CUDA,),
        cases=(
            Message(
                where=(lambda context: maker_of(context.torch.backend) == "amd",),
                text="Keep torch, ROCm and the driver, and install another release of the "
                "package, built for this torch and ROCm. The builds on PyPI are usually for CUDA. "
                "If its project has none, build it from source (with PYTORCH_ROCM_ARCH set to the "
                "GPU's target), or run without it: in transformers "
                'attn_implementation="sdpa" needs no flash-attn',
            ),
            Message(
                having={"library": "^libc10_cuda"},
                title="A CUDA extension cannot find libc10_cuda.so: torch is a CPU build, or the "
                "program does not import torch first",
                text="Check which torch is installed. `None` means a CPU build: replace it",
                commands=("gpusetup install",),
                look=(alike.TORCHS_CUDA,),
            ),
            Message(
                where=(only_python_differs,),
                title="{module} was built for Python {built_python}, but this is Python {python}",
                means="A compiled extension fits only one minor version of Python. It does match "
                "the installed torch.",
                text="Keep torch. Use this Python's own pip to install the extension's build for "
                "this Python, without its requirements. If its project has none for this system "
                "(boards such as Jetson), build it from source, or run without it",
                commands=(
                    "pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir "
                    "{module}",
                ),
                look=(alike.TORCHS_CUDA,),
            ),
            Message(
                having={"module": "^flash_?attn"},
                text="The easiest way is to use torch's own attention, which needs no package "
                '(attn_implementation="sdpa" in transformers, no --flash-attn in trainers). As '
                "an alternative, reinstall flash-attn without its cache: its installer downloads "
                "the wheel for this torch, CUDA and Python if the project has one "
                "(https://github.com/Dao-AILab/flash-attention/releases), and otherwise builds "
                "from source, which may take hours",
                commands=(
                    "pip install --no-build-isolation --no-deps --force-reinstall --no-cache-dir "
                    "flash-attn",
                ),
                look=(alike.TORCHS_CUDA,),
            ),
        ),
        says=(
            says(rf"(?P<module>{COMPILED_MODULE})[\w.-]{{0,60}}\.so:? undefined symbol\b(?!:? _)", example="ImportError causal_conv1d_cuda.cpython-310-x86_64-linux-gnu.so undefined symbol"),
            says(r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ undefined\ symbol:?
        \ (?P<symbol>\w+)
        """, "torch_extensions", example="ImportError: /home/u/.cache/torch_extensions/py310_cu121/fused_adam/fused_adam.so: undefined symbol: _ZN2at4_ops5zeros4callE"),
            says(r"(?<![\w/.-])(?P<module>\w{2,40}_cuda) undefined symbol", example="flash_attn_2_cuda undefined symbol"),
            rf"(?<![\w/])(?P<library>{TORCH_LIBRARY}\.so): cannot open shared",
            r"DLL load failed while importing (?P<module>(?!_C\b|torch)\w+): The specified procedure could not be found",
            says(r"(?P<module>[\w-]+) was compiled against (?:a different )?(?:py)?torch(?: version)? ?(?P<built_torch>\d[\w.+]*)?", example="RuntimeError: torch_cluster was compiled against a different PyTorch version 2.1.0"),
            says(r"xFormers was built for: ?PyTorch (?P<built_torch>\d[\w.+]*)(?: with CUDA (?P<built_cuda>\w+))? \(you have (?P<torch>[\w.+]+)\)(?:\s{1,8}Python (?P<built_python>\d[\w.]*) \(you have (?P<python>\d[\w.]*)\))?", module="xformers", example="WARNING: xFormers was built for:\n    PyTorch 2.5.1+cu121 with CUDA 1201 (you have 2.6.0+cu124)\n    Python  3.11.10 (you have 3.11.9)"),
            says(rf"""(?x)
        (?:site|dist)-packages/(?P<module>(?!torch(?:vision|audio)?/)[A-Za-z][\w-]{{1,40}})
        (?:-[^/]{{1,60}}\.egg)?/(?:[\w.-]{{1,60}}/){{0,4}}[\w.-]{{1,80}}\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """, "undefined symbol"),
            rf"/(?P<module>(?!torch(?:vision|audio)?/|lib/)[A-Za-z][\w-]{{1,40}})/_(?:C|ext|cuda)[\w.-]{{0,60}}\.so: undefined symbol:? (?P<symbol>{TORCH_SYMBOL})",
            says(rf"""(?x)
        (?P<copy>/(?:(?!(?:site|dist)-packages|torch_extensions)[^\s'\":]){{2,200}})/
        (?P<module>(?!_|lib(?:torch|c10))[\w-]{{2,60}})
        (?:\.[\w-]{{1,40}}){{0,2}}\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """, "undefined symbol", unless=r"torch(?:audio|vision)[/\\]"),
            says(rf"""(?x)
        dlopen\((?:[^()]{{0,200}}/)?
        (?P<module>(?!lib(?:torch|c10))[\w+-]{{2,40}})
        (?:\.[\w-]{{1,40}}){{0,3}},\ \w{{1,10}}\):\ Symbol\ not\ found:
        \ (?P<symbol>{TORCH_SYMBOL})
        """, "symbol not found", unless=r"torch(?:audio|vision)[/\\]|_torch_sox", example="ImportError: dlopen(/x/site-packages/torch_sparse/_spmm_cpu.so, 0x0006): Symbol not found: __ZN3c106detail14torchCheckFailE"),
            says(rf"""(?x)
        (?<![\w.-])(?P<module>(?!torchvision|torchaudio|_torch_sox|lib(?:torch|c10|torchaudio|caffe))[\w+-]+)
        (?:\.[\w-]+)*\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """, "undefined symbol", unless=r"torch(?:audio|vision)[/\\]"),
            # `bitsandbytes/libbitsandbytes_rocm62.so: undefined symbol: _Z36__device_stub__kOptimizer`:
            # a kernel or a function of CUDA's or ROCm's runtime, which the package's build lacks.
            says(rf"(?:site|dist)-packages/(?P<module>{KERNEL_PACKAGES})/(?:[\w.-]{{1,60}}/){{0,4}}[\w.-]{{1,80}}\.so[.\d]*: undefined symbol: (?P<symbol>{OF_ITS_BUILD})", "undefined symbol", lacks="a part of its build", example="OSError: /x/site-packages/bitsandbytes/libbitsandbytes_rocm62.so: undefined symbol: _Z36__device_stub__kOptimizer32bit1StateI12hip_bfloat16Li2EEvPT_"),
            says(r"(?<!so: )undefined symbol: (?P<symbol>_ZNK?\d?\w{0,8}(?:c10|at4_ops|at6|5torch)\w*)", unless=r"\.so|lib(?:torch|c10)", example="ImportError: undefined symbol: _ZN3c104cuda14ExchangeDeviceEa"),
        ),
        not_examples=(
            "selective_scan_cuda has an undefined symbol",
            "/x/site-packages/vllm/_C.so: undefined symbol: PyUnicode_AsUTF8",
        ),
    ),
    Cause(
        "extension-arch-mismatch",
        title="{who} has no kernel for {gpu}",
        plain="An extension has no kernel for the GPU, but torch has one",
        means="The extension was compiled for the GPUs of another machine.",
        text="Rebuild the extension for this GPU (or install the wheel of a newer release)",
        # Source: messages of torch/utils/cpp_extension.py.
        commands=lambda context: (
            *paste.architectures_for_build(context),
            *rebuild_commands(context, extension_of(kernel_messages(context))),
        ),
        alike={alike.TORCHS_KERNELS: ("arch-too-old-for-wheel", "arch-too-new-for-wheel")},
    ),
)  # fmt: skip
