"""Messages of imports: companions and extensions of another torch, modules that are hidden or missing.

Sources: the extension loaders of torchvision, torchaudio and xformers, glibc's ld.so and macOS'
dyld on torch's C++ symbols, pip's resolver, Python's import system of 3.6 to 3.14,
torch/library.py.
"""

from __future__ import annotations

from gpusetup.messages.fragments import STDLIB as MODULES
from gpusetup.messages.libraries import TORCH_LIBRARY
from gpusetup.messages.row import row, rows

TORCH_SYMBOL = r"(?!_ZNK?\d{1,2}tensorflow)(?:_ZN?K?\w{0,8}(?:c10|2at|3c10|5torch|caffe2|torch|at)\w*|\w*(?:c10|torch|Tensor)\w*)"
COMPILED_MODULE = (
    r"(?:MultiScaleDeformableAttention|MinkowskiEngineBackend|tinycudann_bindings|pointnet2_cuda|iou3d_nms_cuda"
    r"|flash_attn_(?:2_|3_)?cuda|selective_scan_cuda|causal_conv1d_cuda|fused_layer_norm_cuda|amp_C"
    r"|\w{2,40}(?:rast|act|dn2d|lrelu)_plugin|exllama_kernels|exllamav2_kernels|exllamav2_ext|quant_cuda|awq_ext|_gridencoder|_raymarching)"
)
"""The compiled modules of packages that a plain import shows by name (their setup files)."""

STDLIB = "(?:" + "|".join(sorted(sorted(MODULES), key=len, reverse=True)) + ")"

COMPANIONS = (
    *rows(
        "torchvision-mismatch",
        {
            "torchvision::": r"(?:operator )?\btorchvision::\w+ does not exist|No such operator torchvision::\w+|Could not find the operator torchvision::nms\b|Could not run 'torchvision::nms' with arguments from the 'CUDA'",
            "load custom c++ ops": r"Couldn't load custom C\+\+ ops",
            "torchvision": r"module 'torchvision' has no attribute 'extension'",
            "torchvision were compiled with different cuda": r"PyTorch and torchvision were compiled with different CUDA(?: major)? versions",
        },
    ),
    *rows(
        "torchvision-mismatch",
        {
            "undefined symbol": r"torchvision\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)",
            "symbol not found": r"dlopen\([^()]{0,200}torchvision[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)",
        },
        unless="Failed to load image Python extension",
    ),
    row(
        "torchvision-image-mismatch",
        "failed to load image python extension",
        rf"Failed to load image Python extension: \W{{0,3}}\S{{0,200}}torchvision\S{{0,60}}: undefined symbol: (?P<symbol>{TORCH_SYMBOL})",
    ),
    *rows(
        "torchaudio-mismatch",
        {
            "torchaudio were compiled with different cuda": r"PyTorch and TorchAudio were compiled with different CUDA(?: major)? versions",
            "undefined symbol": r"torchaudio\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)",
            "_torch_sox": r"_torch_sox\S{0,60}\.so(?:: undefined symbol|, \w{1,4}\): Symbol not found): (?P<symbol>\w+)",
            "symbol not found": r"dlopen\([^()]{0,200}torchaudio[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)",
            "torchaudio": r"WinError 127\].{0,300}?(?P<dll>\w{0,4}torchaudio\w*\.(?:pyd|dll))",
            "could not load this library": r"Could not load this library: \S{0,200}torchaudio\S*",
        },
    ),
    row(
        "torchvision-mismatch",
        "torchvision",
        r"torchvision (?P<torchvision>\d[\w.+]*) (?:requires|has requirement) torch ?==? ?(?P<needs>[\w.+]+), but you(?:'ll)? have (?:torch )?(?P<torch>\d[\w.+]*\w)",
    ),
    row(
        "torchaudio-mismatch",
        "torchaudio",
        r"torchaudio (?P<torchaudio>\d[\w.+]*) (?:requires|has requirement) torch ?==? ?(?P<needs>[\w.+]+), but you(?:'ll)? have (?:torch )?(?P<torch>\d[\w.+]*\w)",
    ),
)

EXTENSIONS = (
    row(
        "extension-abi-mismatch",
        "xformers was built for",
        r"xFormers was built for: ?PyTorch (?P<built_torch>\d[\w.+]*)(?: with CUDA (?P<built_cuda>\w+))? \(you have (?P<torch>[\w.+]+)\)",
        module="xformers",
    ),
    *rows(
        "extension-abi-mismatch",
        {
            "undefined symbol": (
                rf"""(?x)
        (?:site|dist)-packages/(?P<module>(?!torch(?:vision|audio)?/)[A-Za-z][\w-]{{1,40}})
        (?:-[^/]{{1,60}}\.egg)?/(?:[\w.-]{{1,60}}/){{0,4}}[\w.-]{{1,80}}\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """
            ),
            "torch_extensions": (
                r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ undefined\ symbol:?
        \ (?P<symbol>\w+)
        """
            ),
            "cuda undefined symbol": r"(?<![\w/.-])(?P<module>\w{2,40}_cuda) undefined symbol",
            ".so": rf"(?<![\w/])(?P<library>{TORCH_LIBRARY}\.so): cannot open shared",
            "specified procedure": r"DLL load failed while importing (?P<module>(?!_C\b|torch)\w+): The specified procedure could not be found",
            "was compiled against": r"(?P<module>[\w-]+) was compiled against (?:a different )?(?:py)?torch(?: version)? ?(?P<built_torch>\d[\w.+]*)?",
        },
    ),
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        rf"/(?P<module>(?!torch(?:vision|audio)?/|lib/)[A-Za-z][\w-]{{1,40}})/_(?:C|ext|cuda)[\w.-]{{0,60}}\.so: undefined symbol:? (?P<symbol>{TORCH_SYMBOL})",
    ),
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        rf"""(?x)
        (?P<copy>/(?:(?!(?:site|dist)-packages|torch_extensions)[^\s'\":]){{2,200}})/
        (?P<module>(?!_|lib(?:torch|c10))[\w-]{{2,60}})
        (?:\.[\w-]{{1,40}}){{0,2}}\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """,
        unless=r"torch(?:audio|vision)[/\\]",
    ),
    row(
        "extension-abi-mismatch",
        "symbol not found",
        rf"""(?x)
        dlopen\((?:[^()]{{0,200}}/)?
        (?P<module>(?!lib(?:torch|c10))[\w+-]{{2,40}})
        (?:\.[\w-]{{1,40}}){{0,3}},\ \w{{1,10}}\):\ Symbol\ not\ found:
        \ (?P<symbol>{TORCH_SYMBOL})
        """,
        unless=r"torch(?:audio|vision)[/\\]|_torch_sox",
    ),
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        rf"""(?x)
        (?<![\w.-])(?P<module>(?!torchvision|torchaudio|_torch_sox|lib(?:torch|c10|torchaudio|caffe))[\w+-]+)
        (?:\.[\w-]+)*\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """,
        unless=r"torch(?:audio|vision)[/\\]",
    ),
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        r"(?<!so: )undefined symbol: (?P<symbol>_ZNK?\d?\w{0,8}(?:c10|at4_ops|at6|5torch)\w*)",
        unless=r"\.so|lib(?:torch|c10)",
    ),
    row(
        "mixed-conda-pip",
        "undefined symbol",
        rf"(?P<library>lib(?:torch_python|torch_cuda\w*|torch_cpu|torch|c10_cuda|c10|shm)\.so): undefined symbol: (?P<symbol>{TORCH_SYMBOL})",
    ),
    row("openmp-twice", "libiomp5md.dll already initialized"),
)

NOT_BUILT = (
    row(
        "extension-installed",
        "pip",
        r"\bpip3? install (?:-\S{1,40} ){0,4}(?P<module>(?:mamba[-_]ssm|causal[-_]conv1d|flash[-_]attn|sageattention|exllamav[23]|auto[-_]gptq|autoawq|gsplat|nerfacc|pytorch3d|natten|spconv(?:-cu\d{2,3})?|torch[-_](?:scatter|sparse|cluster)|mmcv(?:-full)?))(?=[ =<>\[]|$)(?=.{0,1100}?no kernel image is available)",
    ),
    *rows(
        "extension-not-built",
        {
            "dll load failed while importing": r"DLL load failed while importing (?P<module>\w{2,40}_plugin)\b",
            "is not built correctly": r"failed to import\. (?P<module>[a-z]\w{2,30}) is not built correctly",
            "no module named": (
                r"""(?x)
        No\ module\ named\ ['\"]?
        (?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})
        (?:\.\w{1,40}){0,4}\.(?:_C|_ext|_cuda|_CUDA|core_cc|_kernels|cuda_ext)\b
        """
            ),
            "cannot import name": r"cannot import name '(?:_C|_ext)' from (?:partially initialized module )?'(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})",
            "name '_c' is not defined": r"(?P<module>(?i:groundingdino|grounding_dino))[/\\].{0,600}?name '_C' is not defined",
            "torch_extensions": (
                r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ cannot\ open\ shared\ object\ file
        """
            ),
        },
    ),
    row(
        "extension-not-built",
        "mmcv cuda compiler: not available",
        r"CUDA available: True.{0,3000}?MMCV CUDA Compiler: not available",
        module="mmcv",
    ),
    row(
        "extension-not-built",
        "no module named",
        rf"No module named ['\"]?(?P<module>{COMPILED_MODULE})\b",
    ),
)

IMPORTS = (
    row(
        "backport-in-the-way",
        "intflag",
        r"module 'enum' has no attribute 'IntFlag'",
        package="enum34",
        module="enum",
    ),
    row(
        "backport-in-the-way",
        "_abc_registry",
        r"type object 'Callable' has no attribute '_abc_registry'",
        package="typing",
        module="typing",
    ),
    row(
        "backport-in-the-way",
        "_classvar",
        r"module 'typing' has no attribute '_ClassVar'",
        package="dataclasses",
        module="dataclasses",
    ),
    *rows(
        "torch-missing",
        {
            "no module named": r"No module named ['\"]?torch['\"]?(?![\w.])",
            "package 'torch' is not": r"Package 'torch' is not installed",
            "not found: torch": r"Package\(s\) not found: torch\b",
        },
    ),
    row(
        "module-missing",
        "no module named",
        r"No module named ['\"]?(?P<module>(?!torch\b|pip\b|triton\b|_C\b)[\w.]+)",
    ),
    *rows(
        "module-shadowed",
        {
            "circular import": rf"partially initialized module '(?P<module>{STDLIB})(?:\.\w+)*'.{{0,80}}\(most likely due to a circular import\)(?: \((?P<path>[^()]{{1,160}}\.py)\))?",
            "cannot import name": rf"cannot import name '\w+' from '(?P<module>{STDLIB})' \((?P<path>(?![^()]*[/\\](?:lib|Lib|lib64)[/\\])[^()]{{1,160}}[/\\](?P=module)\.py)\)",
            "consider renaming": r"consider renaming '(?P<path>[^']{1,200}?(?P<module>\w+)\.py)' (?:since|if) it has the same name",
        },
    ),
    *rows(
        "module-shadowed",
        {
            "torch/_c": r"loaded the `torch/_C` folder of the PyTorch repository",
            "no module named": r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?No module named ['\"]?(?:torch\.)?_C\b",
            "torch/__init__.py in <module>": r"(?<![^\s>])(?P<path>(?:(?!(?:site|dist)-packages)[^\s'\"()]){0,160}\btorch/__init__\.py) in <module>.{0,400}?No module named ['\"]?(?:torch\.)?_C\b",
            "name '_c' is not defined": r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?name '_C' is not defined",
            "from a clone of the git repo": r"importing PyTorch from a clone of the git repo: {1,4}(?P<path>[^\s]{1,160})?",
            "(unknown location)": r"cannot import name '\w+' from 'torch\._C' \(unknown location\)",
            "module 'torch' has no attribute": r"module 'torch' has no attribute '(?:Tensor|cuda|nn|__version__|device|tensor|float32|zeros|no_grad)'",
        },
        module="torch",
    ),
    *rows(
        "torch-half-installed",
        {
            "name '_c' is not defined": r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py.{0,400}?name '_C' is not defined",
            "no module named": r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py['\"].{0,160}?No module named ['\"]?torch\.(?:_C|version|torch_version)\b",
        },
    ),
)

OPERATORS = (
    row(
        "torchvision-mismatch",
        "meta kernel directly to the operator",
        r"register a meta kernel directly to the operator \W?torchvision::",
    ),
)

ROWS = (*COMPANIONS, *EXTENSIONS, *NOT_BUILT, *IMPORTS, *OPERATORS)
