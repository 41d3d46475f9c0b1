"""Extensions that were not built, or built without a GPU."""

from __future__ import annotations

from gpusetup.causes import alike
from gpusetup.causes.extensions import BUILD_CACHE, BUILD_CACHE_ON_WINDOWS
from gpusetup.causes.record import Cause, Message
from gpusetup.causes.sources import CPP_EXTENSION
from gpusetup.fixes import paste
from gpusetup.fixes.distributions import anew
from gpusetup.messages.fragments import COMPILED_MODULE, CPU_PART
from gpusetup.messages.row import says

CAUSES = (
    Cause(
        "extension-not-built",
        title="The compiled part of {module} is missing",
        plain="The compiled part of an extension is missing",
        means="Its build failed or was skipped (no compiler, no toolkit, no visible GPU), or a "
        "variant without compiled operators is installed.",
        text="Rebuild it with the nvcc of torch's CUDA and a visible GPU (or set "
        "TORCH_CUDA_ARCH_LIST to its architecture), and read the build's output",
        proven_by="The import names the compiled module (._C, ._ext), or a file of torch_extensions is not there",
        not_when="extension-abi-mismatch: it exists but was built for another torch",
        source="mmcv, detectron2 and GroundingDINO documentation, installation; " + CPP_EXTENSION,
        commands=anew("extension-not-built"),
        look=(alike.TORCHS_CUDA,),
        see="see which CUDA torch has",
        cases=(
            Message(
                having={"module": "^mmcv$"},
                text="Install the mmcv with operators, a wheel made for this torch and CUDA "
                "(mim finds it; mmcv-lite has none)",
                commands=(
                    "pip uninstall -y mmcv mmcv-lite mmcv-full",
                    "pip install --upgrade openmim",
                    "python -m mim install mmcv",
                ),
            ),
            Message(
                having={"module": "^spconv$"},
                text="Install the wheel made for torch's CUDA in its place: spconv-cu120, "
                "spconv-cu118 (any of torch's major version works)",
                commands=("pip uninstall -y spconv cumm",),
                look=(alike.TORCHS_CUDA,),
                see="see which CUDA torch has",
            ),
            *(
                Message(
                    having=having,
                    text="torch builds it on the first call: empty its cache, have one toolkit "
                    "of torch's CUDA first on PATH, and run again; the compiler's first error "
                    "is the reason",
                    commands=(BUILD_CACHE,),
                    windows=(BUILD_CACHE_ON_WINDOWS,),
                )
                for having in ({"cache": ""}, {"module": "_plugin$"})
            ),
        ),
        says=(
            r"RuntimeError: Not compiled with (?:CUDA|GPU) support",
            r"NameError: (?:global )?name '(?P<module>(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)(?:\w{2,30}_)?cuda(?:_(?:ext|ops|kernels?|\d{2,3}))|(?!(?:use|has|is|no|with|to|on|enable|device|num|torch)_)\w{2,30}_(?:cuda|cuda_ext|kernels|_C))' is not defined",
            r"RuntimeError: \W?(?P<module>\w{3,40})?\W{0,2} ?Not implemented on the CPU",
            r"'NoneType' object has no attribute '(?P<module>causal_conv1d|selective_scan|CameraModelType)\w*'",
            r"(?P<module>[\w.]{3,40}) requires the CUDA flash attention extensions",
            r"DLL load failed while importing (?P<module>\w{2,40}_plugin)\b",
            r"failed to import\. (?P<module>[a-z]\w{2,30}) is not built correctly",
            says(
                r"""(?x)
        No\ module\ named\ ['\"]?
        (?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})
        (?:\.\w{1,40}){0,4}\.(?:_C|_ext|_cuda|_CUDA|core_cc|_kernels|cuda_ext)\b
        """,
                "no module named",
            ),
            r"cannot import name '(?:_C|_ext)' from (?:partially initialized module )?'(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})",
            r"(?P<module>(?i:groundingdino|grounding_dino))[/\\].{0,600}?name '_C' is not defined",
            says(
                r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ cannot\ open\ shared\ object\ file
        """,
                "torch_extensions",
            ),
            says(
                r"NameError: (?:global )?name '_C' is not defined",
                unless=r"torch[/\\]__init__\.py|groundingdino|grounding_dino",
            ),
            says(
                r"'_OpNamespace' '_(?:C|moe_C|vllm_fa\d_C|C_cache_ops)' object has no attribute '\w{2,60}'",
                module="vllm._C",
            ),
            says(
                r"Can ?not import sgl_kernel\. Please check your installation", module="sgl_kernel"
            ),
            says(
                r"Fallback to pytorch engine because turbomind engine is not installed correctly",
                module="turbomind",
            ),
            says(r"CUDA available: True.{0,3000}?MMCV CUDA Compiler: not available", module="mmcv"),
            rf"No module named ['\"]?(?P<module>{COMPILED_MODULE})\b",
            says(CPU_PART, module="bitsandbytes"),
            says(r"object has no attribute 'ds_opt_(?:adam|adagrad|lion)'", module="deepspeed"),
            says(
                r"NameError: name 'exllama(?:v[23])?_ext(?:_c)?' is not defined", module="exllamav2"
            ),
        ),
        examples=(
            "NameError: name 'autogptq_cuda_256' is not defined",
            "RuntimeError: Not compiled with CUDA support",
            "NameError: name '_C' is not defined",
            "RuntimeError: Not implemented on the CPU",
            "AttributeError: 'NoneType' object has no attribute 'causal_conv1d_fwd'",
            "AttributeError: '_OpNamespace' '_C' object has no attribute 'rms_norm'",
            "ImportError: Can not import sgl_kernel. Please check your installation.",
            "ImportError: vllm.vllm_flash_attn requires the CUDA flash attention extensions (_vllm_fa2_C or _vllm_fa3_C). On ROCm, use upstream flash_attn.",
            "ImportError: DLL load failed while importing upfirdn2d_plugin: The specified module could not be found.",
            "sys.platform: linux\nCUDA available: True\nMMCV: 1.7.1\nMMCV Compiler: GCC 9.4\nMMCV CUDA Compiler: not available",
            "ImportError: cannot import name '_C' from 'detectron2' (/x/detectron2/__init__.py)",
            "File \"/x/groundingdino/models/ms_deform_attn.py\", line 53\nNameError: name '_C' is not defined",
            "ImportError: /home/u/.cache/torch_extensions/py311_cu124/fused_adam/fused_adam.so: cannot open shared object file: No such file or directory",
            "detectron2._C           failed to import. detectron2 is not built correctly",
            "Could not load the native library: /srv/bnb/libbitsandbytes_cpu.so: cannot open shared object file",
            "NameError: name 'exllamav2_ext' is not defined",
            "AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",
        ),
        not_examples=(
            "it is not compiled with anything",
            "it is not implemented on the CPU yet",
            "'_OpNamespace' 'mylib' object has an attribute 'f'",
            "import sgl_kernel",
        ),
    ),
    Cause(
        "build-without-gpu",
        title="torch sees no GPU, so it cannot choose the architecture of the extension",
        means="In `docker build`, on a login node and under a driver that does not answer torch sees none, and without TORCH_CUDA_ARCH_LIST it builds for the GPUs that it sees.",
        text="Set TORCH_CUDA_ARCH_LIST to the architectures of the target GPUs "
        "(torch.cuda.get_device_capability() prints it there)",
        proven_by="_get_cuda_arch_flags ends in IndexError",
        not_when="cuda-toolkit-missing: the build finds no nvcc",
        source=CPP_EXTENSION + ", _get_cuda_arch_flags",
        stage="build",
        commands=paste.build_for,
        says=(
            r"CUDA_ARCHITECTURES is set to \W{0,2}native\W{0,2}, but no GPU was detected",
            r"_get_cuda_arch_flags.{0,200}?IndexError: list index out of range",
        ),
    ),
)
