"""Messages of imports: companions and extensions of another torch, modules that are hidden or missing.

Sources: the extension loaders of torchvision, torchaudio and xformers, glibc's ld.so and macOS'
dyld on torch's C++ symbols, pip's resolver, Python's import system of 3.6 to 3.14,
torch/library.py.
"""

from __future__ import annotations

from gpusetup.messages.fragments import STDLIB as MODULES
from gpusetup.messages.libraries import TORCH_LIBRARY
from gpusetup.messages.row import row

TORCH_SYMBOL = r"(?!_ZNK?\d{1,2}tensorflow)(?:_ZN?K?\w{0,8}(?:c10|2at|3c10|5torch|caffe2|torch|at)\w*|\w*(?:c10|torch|Tensor)\w*)"
COMPILED_MODULE = (
    r"(?:MultiScaleDeformableAttention|MinkowskiEngineBackend|tinycudann_bindings|pointnet2_cuda|iou3d_nms_cuda"
    r"|flash_attn_(?:2_|3_)?cuda|selective_scan_cuda|causal_conv1d_cuda|fused_layer_norm_cuda|amp_C"
    r"|\w{2,40}(?:rast|act|dn2d|lrelu)_plugin|exllama_kernels|exllamav2_kernels|exllamav2_ext|quant_cuda|awq_ext|_gridencoder|_raymarching)"
)
"""The compiled modules of packages that a plain import shows by name (their setup files)."""
WITH_KERNELS = (
    r"(?:mamba[-_]ssm|causal[-_]conv1d|flash[-_]attn|sageattention|exllamav[23]|auto[-_]gptq|autoawq"
    r"|gsplat|nerfacc|pytorch3d|natten|spconv(?:-cu\d{2,3})?|torch[-_](?:scatter|sparse|cluster)|mmcv(?:-full)?)"
)
"""Packages that bring kernels of their own, by what pip calls them (their setup files)."""
STDLIB = "(?:" + "|".join(sorted(sorted(MODULES), key=len, reverse=True)) + ")"

COMPANIONS = (
    row(
        "torchvision-mismatch",
        "torchvision::",
        r"(?:operator )?\btorchvision::\w+ does not exist|No such operator torchvision::\w+|Could not find the operator torchvision::nms\b|Could not run 'torchvision::nms' with arguments from the 'CUDA'",
    ),
    row("torchvision-mismatch", "load custom c++ ops", r"Couldn't load custom C\+\+ ops"),
    row(
        "torchvision-mismatch", "torchvision", r"module 'torchvision' has no attribute 'extension'"
    ),
    row(
        "torchvision-mismatch",
        "torchvision were compiled with different cuda",
        r"PyTorch and torchvision were compiled with different CUDA(?: major)? versions",
    ),
    row(
        "torchvision-mismatch",
        "undefined symbol",
        r"torchvision\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)",
        unless="Failed to load image Python extension",
    ),
    row(
        "torchvision-image-mismatch",
        "failed to load image python extension",
        rf"Failed to load image Python extension: \W{{0,3}}\S{{0,200}}torchvision\S{{0,60}}: undefined symbol: (?P<symbol>{TORCH_SYMBOL})",
    ),
    row(
        "torchaudio-mismatch",
        "torchaudio were compiled with different cuda",
        r"PyTorch and TorchAudio were compiled with different CUDA(?: major)? versions",
    ),
    row(
        "torchaudio-mismatch",
        "undefined symbol",
        r"torchaudio\S{0,40}\.so: undefined symbol: (?P<symbol>\w+)",
    ),
    row(
        "torchaudio-mismatch",
        "_torch_sox",
        r"_torch_sox\S{0,60}\.so(?:: undefined symbol|, \w{1,4}\): Symbol not found): (?P<symbol>\w+)",
    ),
    row(
        "torchaudio-mismatch",
        "symbol not found",
        r"dlopen\([^()]{0,200}torchaudio[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)",
    ),
    row(
        "torchvision-mismatch",
        "symbol not found",
        r"dlopen\([^()]{0,200}torchvision[^()]{0,80}\): Symbol not found: (?P<symbol>\w+)",
        unless="Failed to load image Python extension",
    ),
    row(
        "torchaudio-mismatch",
        "torchaudio",
        r"WinError 127\].{0,300}?(?P<dll>\w{0,4}torchaudio\w*\.(?:pyd|dll))",
    ),
    row(
        "torchaudio-mismatch",
        "could not load this library",
        r"Could not load this library: \S{0,200}torchaudio\S*",
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
    row(
        "extension-abi-mismatch",
        "undefined symbol",
        rf"""(?x)
        (?:site|dist)-packages/(?P<module>(?!torch(?:vision|audio)?/)[A-Za-z][\w-]{{1,40}})
        (?:-[^/]{{1,60}}\.egg)?/(?:[\w.-]{{1,60}}/){{0,4}}[\w.-]{{1,80}}\.so:\ undefined\ symbol:?
        \ (?P<symbol>{TORCH_SYMBOL})
        """,
    ),
    row(
        "extension-abi-mismatch",
        "torch_extensions",
        r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ undefined\ symbol:?
        \ (?P<symbol>\w+)
        """,
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
        "cuda undefined symbol",
        r"(?<![\w/.-])(?P<module>\w{2,40}_cuda) undefined symbol",
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
        "extension-abi-mismatch",
        ".so",
        rf"(?<![\w/])(?P<library>{TORCH_LIBRARY}\.so): cannot open shared",
    ),
    row(
        "extension-abi-mismatch",
        "specified procedure",
        r"DLL load failed while importing (?P<module>(?!_C\b|torch)\w+): The specified procedure could not be found",
    ),
    row(
        "extension-abi-mismatch",
        "was compiled against",
        r"(?P<module>[\w-]+) was compiled against (?:a different )?(?:py)?torch(?: version)? ?(?P<built_torch>\d[\w.+]*)?",
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
        rf"\bpip3? install (?:-\S{{1,40}} ){{0,4}}(?P<module>{WITH_KERNELS})(?=[ =<>\[]|$)(?=.{{0,1100}}?no kernel image is available)",
    ),
    row(
        "extension-not-built",
        "dll load failed while importing",
        r"DLL load failed while importing (?P<module>\w{2,40}_plugin)\b",
    ),
    row(
        "extension-not-built",
        "is not built correctly",
        r"failed to import\. (?P<module>[a-z]\w{2,30}) is not built correctly",
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
        r"""(?x)
        No\ module\ named\ ['\"]?
        (?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})
        (?:\.\w{1,40}){0,4}\.(?:_C|_ext|_cuda|_CUDA|core_cc|_kernels|cuda_ext)\b
        """,
    ),
    row(
        "extension-not-built",
        "no module named",
        rf"No module named ['\"]?(?P<module>{COMPILED_MODULE})\b",
    ),
    row(
        "extension-not-built",
        "cannot import name",
        r"cannot import name '(?:_C|_ext)' from (?:partially initialized module )?'(?P<module>(?!torch\b|torchvision\b|torchaudio\b)[A-Za-z]\w{1,40})",
    ),
    row(
        "extension-not-built",
        "name '_c' is not defined",
        r"(?P<module>(?i:groundingdino|grounding_dino))[/\\].{0,600}?name '_C' is not defined",
    ),
    row(
        "extension-not-built",
        "torch_extensions",
        r"""(?x)
        (?P<cache>(?:/|[A-Z]:\\)[^\s'\"]{0,160}torch_extensions[/\\](?:[\w.-]{1,40}[/\\]){0,3}
          (?P<module>[\w-]{2,60}))[/\\][\w.-]{2,80}\.so:\ cannot\ open\ shared\ object\ file
        """,
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
    row("torch-missing", "no module named", r"No module named ['\"]?torch['\"]?(?![\w.])"),
    row("torch-missing", "package 'torch' is not", r"Package 'torch' is not installed"),
    row("torch-missing", "not found: torch", r"Package\(s\) not found: torch\b"),
    row(
        "module-missing",
        "no module named",
        r"No module named ['\"]?(?P<module>(?!torch\b|pip\b|triton\b|_C\b)[\w.]+)",
    ),
    row(
        "module-shadowed",
        "circular import",
        rf"partially initialized module '(?P<module>{STDLIB})(?:\.\w+)*'.{{0,80}}\(most likely due to a circular import\)(?: \((?P<path>[^()]{{1,160}}\.py)\))?",
    ),
    row(
        "module-shadowed",
        "cannot import name",
        rf"cannot import name '\w+' from '(?P<module>{STDLIB})' \((?P<path>(?![^()]*[/\\](?:lib|Lib|lib64)[/\\])[^()]{{1,160}}[/\\](?P=module)\.py)\)",
    ),
    row(
        "module-shadowed",
        "consider renaming",
        r"consider renaming '(?P<path>[^']{1,200}?(?P<module>\w+)\.py)' (?:since|if) it has the same name",
    ),
    row(
        "module-shadowed",
        "torch/_c",
        r"loaded the `torch/_C` folder of the PyTorch repository",
        module="torch",
    ),
    row(
        "module-shadowed",
        "no module named",
        r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?No module named ['\"]?(?:torch\.)?_C\b",
        module="torch",
    ),
    row(
        "module-shadowed",
        "torch/__init__.py in <module>",
        r"(?<![^\s>])(?P<path>(?:(?!(?:site|dist)-packages)[^\s'\"()]){0,160}\btorch/__init__\.py) in <module>.{0,400}?No module named ['\"]?(?:torch\.)?_C\b",
        module="torch",
    ),
    row(
        "module-shadowed",
        "name '_c' is not defined",
        r"File ['\"](?P<path>(?![^'\"]*(?:site|dist)-packages)[^'\"]{0,160}\btorch[/\\]__init__\.py)['\"].{0,160}?name '_C' is not defined",
        module="torch",
    ),
    row(
        "module-shadowed",
        "from a clone of the git repo",
        r"importing PyTorch from a clone of the git repo: {1,4}(?P<path>[^\s]{1,160})?",
        module="torch",
    ),
    row(
        "module-shadowed",
        "(unknown location)",
        r"cannot import name '\w+' from 'torch\._C' \(unknown location\)",
        module="torch",
    ),
    row(
        "module-shadowed",
        "module 'torch' has no attribute",
        r"module 'torch' has no attribute '(?:Tensor|cuda|nn|__version__|device|tensor|float32|zeros|no_grad)'",
        module="torch",
    ),
    row(
        "torch-half-installed",
        "name '_c' is not defined",
        r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py.{0,400}?name '_C' is not defined",
    ),
    row(
        "torch-half-installed",
        "no module named",
        r"(?:site|dist)-packages[/\\]torch[/\\]__init__\.py['\"].{0,160}?No module named ['\"]?torch\.(?:_C|version|torch_version)\b",
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
