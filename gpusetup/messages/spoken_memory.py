"""What people say of a memory that does not suffice: the GPU's, or the host's.

"OOM" and "out of memory" are said of either. A word of the GPU in or near the sentence decides for
the GPU's; a killer, a signal or the system's RAM is the host's.

Sources, as of November 2026: titles and first lines of threads in issue trackers; Wan2GP's wgp.py.
"""

from __future__ import annotations

from gpusetup.messages.spoken import MAYBE, said

A_GPU = r"(?:\b|(?<=\d[x×]))(?:CUDA|GPUs?|VRAM|nvidia|(?:RTX|GTX)(?: ?\d{3,4})?|[ABHV]\d00|A\d{1,2}G?|L40S?|T4|P100|[345]0[5-9]0|vLLM|deepspeed|(?:fine-?)?tun(?:e|ing)|training)\b"
MEMORY_OF_IT = (
    r"(?:(?:GPUs?|graphics?(?: card)?|video(?: card)?|CUDA|device)(?:'s)? (?:memory|RAM)|VRAM)"
)
OOM = r"(?:OOM(?:s|ed|ing|'d)?|out[- ]of[- ](?:the )?memory)(?![a-z:_])"
SAYS = (
    r"(?:\b(?:after|get|gets|getting|got|gives?|giving|gave|hits?|hitting|r[au]n(?:s|ning)?(?: \w+)?(?: into)?|throws?|threw|rais(?:es|ed)|caus(?:es|ed|ing)|lead(?:s|ing)? to|led to"
    r"|result(?:s|ed|ing)? in|encounter(?:s|ed|ing)?|fac(?:es|ed|ing)|shows?|showed|says?|goes|went|still|always|immediately|eventually|quickly|crash(?:es|ed|ing)?|fail(?:s|ed|ing)?|with|due to|from|because of"
    r"|is|are|was|were|the|have|has|had|having|following|report(?:s|ed)|but|it|then|model|inference|run|job|script|this|that|which) (?:\S{1,24} ){0,3}?)"
)
NO_FAILURE = (
    r"oom.?kill|\bkill(?:ed|er|s)\b|sigkill|(?<!gb of )(?<!gig of )(?<!\dgb )(?<!\d gb )(?<!gigs of )\b(?:system|host|cpu|main|physical|node|pinned|java|heap|disk)(?:'s)? (?:ram|memory|oom)\b"
    r"|\bcpu out of memory|(?:code|status) ?:? ?-?(?:9|137)\b|bad_alloc|paging file|page file|defaultcpuallocator|\bswap\b|tried to allocate|\bexcept\b|\billegal|\bECC\b|correctable|corrupt|KeyError|\bworks (?:with|for|when)\b"
    r"|\b(?:avoid|prevent|without|never|no|no more|no longer|not|before|until|unless|if|when|whenever|in case|whether|handle|handles|recover|recovers|risk of|potential|possible|may|might|could|would|won't|don't|fix(?:es|ed)?|reduce|estimate|likely)(?:ing|s)? (?:\S{1,20} ){0,4}?(?:\bOOM|out[- ]of[- ](?:\w+ )?(?:memory|VRAM))"
    r"|\b(?:if|when|whenever|unless|avoids?|avoiding|in case|without|prevents?|preventing|whether|how to handle|could|may|might|would) (?:\S{1,16} ){0,6}?(?:exceed|exhaust|memory error|insufficient|not enough)|(?:\bnot|n't) (?:exceed|overflow)"
    r"|\b(?:is|was|could|can|might|may) (?:it|this|that) (?:be )?(?:because|due|caused|related|a matter)\b"
)
"""The computer's memory is meant, or somebody speaks of such a failure and has none."""
ROWS = (
    said(
        "out-of-memory",
        rf"\b(?:CUDA|GPUs?|VRAM|torch)(?:'s)?(?:[ -]memory)? (?:is |are |was |runs? |ran |goes |went |still |always )?{OOM}|\bOOM(?:s|ed)? (?:errors? )?(?:on|in|from) (?:the |my |a |an |one |each |every |both |single |\dx? ?)?(?:\S{{1,20}} )?{A_GPU}"
        rf"|{SAYS}[\"'`“]?{OOM}.{{0,700}}?{A_GPU}|{A_GPU}.{{0,700}}?{SAYS}[\"'`“]?{OOM}|(?<![a-z0-9])out[- ]of[- ]memory[\"'`”]? (?:errors?|issues?|problems?|crash(?:es)?|exceptions?)(?![a-z:]).{{0,700}}?{A_GPU}|{A_GPU}.{{0,700}}?(?<![a-z0-9])out[- ]of[- ]memory (?:errors?|issues?|problems?|crash(?:es)?|exceptions?)(?![a-z:])"
        r"|\b(?:shows?|showed|says?|said|gives?|gave|gets?|got|reports?|throws?) (?:me )?(?:a |an |the )?[\"'`“]out of memory[\"'`”]|(?<![\w.])(?:CUDA ?OutOfMemory(?:Error)?\b|OutOfMemoryError\s{1,60}Traceback \(most recent call last\))",
        *("oom", "out of memory", "out-of-memory", "out of the memory", "outofmemory"),
        unless=NO_FAILURE,
    ),
    said(
        "out-of-memory",
        rf"\b(?:insufficient|not enough(?: free| available)?|out[ -]of|exceed(?:s|ed|ing)?)[ -](?:the |my |all |its |available |total )*(?:\S{{1,12}} )??{MEMORY_OF_IT}\b(?! out of)|{MEMORY_OF_IT}(?: limit)? (?:(?:is|was|are|were|gets?|got|has been|becomes?) )?(?:\w{{2,12}} )??(?:exhausted|exceeded|insufficient|not enough|overflow(?:s|ed)?)\b"
        rf"|\b(?:CUDA|GPU|VRAM)[ -]memory errors?\b|\bmemory errors? (?:on|with|from) (?:the |my |a |an )?(?:\S{{1,12}} )?GPU\b|(?:n't|not|n[o']t) (?:\w+ ){{0,3}}?fit (?:\w+ ){{0,3}}?(?:in|into|on|onto|inside) (?:\S{{1,12}} ){{0,4}}?{MEMORY_OF_IT}[^.\n]{{0,80}}?\b(?:error|fail|crash)|\b{MEMORY_OF_IT}\b[^.\n]{{0,80}}?\b(?:increas|grow|climb|ris|fill|accumulat)(?:e|es|ing|s)\b[^.\n]{{0,40}}?\buntil (?:\S{{1,12}} ){{0,4}}?(?:OOM|(?:run(?:s|ning)? )?out[- ]of[- ](?:\w+ )?(?:memory|VRAM))\b",
        *("insufficient", "not enough", "out of ", "exceed", "exhausted", " fit "),
        *("memory error", "until"),
        unless=NO_FAILURE.replace("|until", ""),
    ),
    said(
        "out-of-memory",
        r"显存(?:不足|不够|溢出|耗尽)|爆显存",
        "显存",
        unless=r"显存(?:不足|不够)[，,]?(?:所以|就|才)?换|(?:是不是|是否|会不会|难道)[^。，,\n]{0,12}显存|(?:如果|若|避免|防止|以免|降低|减少|節省|节省)[^。，,]{0,16}显存",
    ),
    said(
        "host-out-of-memory",
        r"\bcrashed after using (?:up )?all (?:of )?(?:the |its |your )?available RAM\b|\b(?:(?:in|un)sufficient|not enough(?: free| available)?|(?:ran|runs?|running|goes|went) out of(?: my| the| all)?) (?:(?:system |CPU |host |physical |main |computer |PC )?RAM|(?:system|host|CPU) memory)\b",
        *("ram", "system memory", "host memory", "cpu memory"),
        unless=rf"\b(?:GPU|video|graphics) RAM|{MAYBE}(?:insufficient|not enough|run|runs|running)",
    ),
)
