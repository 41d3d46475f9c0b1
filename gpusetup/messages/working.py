"""How a text shows that a GPU computes, and how it mentions a failure, in nine languages.

The patterns cover common wordings and lines that many programs print, never the words of a single
text. `report.works` uses them.
"""

from __future__ import annotations

from gpusetup.messages.alternatives import Alternatives
from gpusetup.model.patterns import lazy

# --- what names no failure ------------------------------------------------------------------------

PRINTED_LABELS = lazy(
    r"(?im)^\W*(?:is \w[\w ()]{2,34} (?:available|built?)|[\w ]{3,40} version|gpu models[\w ]*|cuda_module\w*|hip \w+|vulnerability [\w ]+|error_\w+|clang \w+)\b ?[:?].*$"
    r"|\berrors?: (?:0|none)\b|\b(?:is_available|cuda\.is_available)\(\)|\bno (?:errors?|failures?|problems?)\b|\bCould not collect\b|--kill-on-bad-exit\S*|<frozen [\w.]+>"
)
"""Labels that a tool prints on every machine, and words that deny a failure."""
NOTICES = lazy(
    # Lines that a program itself marks as a notice or warning.
    r"(?i)^\W*(?:\S{0,60}[: ])?(?:(?:Future|Deprecation|User|Runtime|PendingDeprecation|Syntax|Resource|Import)?Warning|INFO|NOTICE|DEBUG)\b(?!.*\b(?:Error\b|Traceback|Xid\b|fall\w* back|on the CPU)).*$"
    # A program that did not find something, uses a fallback and continues.
    r"|^.*\b(?:using the latest cached|defaulting to|skipping|will be (?:skipped|ignored)|optional\b.{0,40}\bnot (?:found|installed)|detection failed despite)\b.*$"
    r"|\berrors?: (?:0|none)\b|\b(?:is_available|cuda\.is_available)\(\)|\b(?:no|without|zero|any) (?:more )?(?:errors?|failures?|problems?|issues?|crash(?:es)?|OOM)\b|\bCould not collect\b|--kill-on-bad-exit\S*"
    # Lines that a tool prints on every machine without CUDA, quoted in a text.
    r"|\b(?:is cuda available|cuda runtime version|nvidia driver version|gpu models and configuration|cuda used to build pytorch|cudnn version)\b ?[:?] ?\W?(?:false|none|n/?a|no cuda)\b|[\"'“]no cuda[\"'”]"
    # Other accelerators that a trainer looks for, and counters of failures that are zero.
    r"|\b[THI]PU available: False.*$|\bnumber of (?:nan|skipped) iterations: +0\b|\bFA2? ?= ?False\b"
    # Plugins that are registered twice or missing, although the program continues.
    r"|^.*\bUnable to register \w+ factory\b.*$|^.*\bcomputation placer already registered\b.*$|^.*\bCould not find TensorRT\b.*$|^.*\bTriton is not available, some optimizations\b.*$|^.*\bwas not compiled with flash attention\b.*$|^.*\bnewly initialized:? .*$|^.*\bwere not (?:used when initializing|initialized from the model checkpoint)\b.*$|^.*\bRedirects are currently not supported\b.*$|^.*\battention mask (?:is not set|and the pad token).*$|^.*\basync output processor cannot be used\b.*$|^.*\bFailed to load image Python extension\b.*$|^.*\bdoes not have many workers\b.*$|^.*\bTensor Cores\. To properly utilize\b.*$"
    # Words that deny a bug, and the term "bug report".
    r"|\b(?:rather than|not|isn't|no) (?:really |actually )?(?:a |an )?(?:bug|failure|crash)\b|\bbug reports?\b"
    # A person who has not started yet.
    r"|\b(?:I|we) (?:have |had )?(?:not|haven't|didn't)(?: yet)? (?:\w+ )?(?:start|try|tri|run|install|us)\w*"
    # Words about the remedy: "I had to restart", "il fallait redémarrer".
    r"|\b(?:had|needed) to (?:just |only )?\w+|\bil (?:fallait|a fallu) \w+|\b(?:tuve|hab[íi]a|hubo) que \w+|\b(?:tive|precisei) (?:que |de )?\w+|\bпришлось \w+|\b(?:надо|нужно) было \w+"
    # "What am I missing without it?", where "missing" is not a failure.
    r"|\b(?:am|are|would) (?:I|we) missing\b(?! (?:my|the|a) gpu)"
    # Things that somebody does not use or need.
    r"|\b(?:I|we) (?:do not|don't|don’t) (?:\w+ )?(?:use|need|want|have|run)\b(?! (?:it|the gpu|my gpu|a gpu|cuda)\b)"
    # Things that somebody does not know or does not find in a list.
    r"|\b(?:I|we) (?:do not|don't|don’t|did not|didn't|cannot|can't|couldn't) (?:really |even )?(?:see|find|know|understand|remember|mind|think)\b(?! (?:my|the|a|any|an) (?:\w+ )?(?:gpus?|cards?|devices?|graphics|nvidia)\b)"
    # The first run with a new shape, which is slow because it selects or compiles kernels.
    r"|\b(?:the )?(?:first|1st) (?:step|run|image|batch|iteration|request|generation|inference|forward|call|start|prompt|token)s? (?:\w+ )?(?:is|are|was|takes?|took)\b[^.\n]{0,24}\b(?:slow\w*|long\w*|minutes?|min)\b"
    # Conditions, and things that somebody does not use on purpose.
    r"|\b(?:if|when|where) (?:the |a )?(?:cuda|gpu|xpu|mps) is (?:unavailable|not available|missing)|\b(?:WSL2?|conda|docker|swap|a container) (?:is )?not used\b"
    r"|:\s{0,3}not (?:found|available|applicable|installed|detected)\.?\s*$"
    r"|\ball slots are idle\b|\bexit(?:ed)? (?:with )?code:? 0\b|\brestart\w* policy\b|\brestart: ?\S+|\b(?:warnings?|警告|경고) .{0,12}(?:ignore|忽略)|\bcan(?: be|not)? ignored?\b"
    r"|sans (?:probl[eè]me|erreur)|sin (?:problemas?|errores)|sem (?:problemas?|erros)|ohne (?:Fehler|Probleme)|без (?:ошибок|проблем)|エラー(?:は|も)?(?:なく|ありません|出ません)|問題なく|没有?(?:报错|错误|问题)|문제 ?없이|오류 ?없이"
)
"""Printed labels, notices, and words that deny a failure. They are removed before the text is
searched for a failure."""
NEGATED_VERB = r"(?:work|detect|find|found|recogni|support|available|see\b|start|load|us(?:e|es|ed|ing)\b|run|go(?:es)? |show|train|compile|connect|finish|get past|respond|load|fit\b|be (?:used|found|detected|loaded|seen))"
FAILURE = Alternatives(
    r"\w*Error\b|\bfail(?:s|ed|ing|ures?)?\b|\bcrash\w*|\bexceptions?\b|\btraceback\b|\bh[au]ng(?:s|ing)?\b|\bstuck\b|\bstalls?\b|\bfreez\w+|\bfroze\w*|\bOOM\b|out of memory|\bsegfault|\bsegmentation fault|\bkilled\b|\baborted?\b|\bcore dumped\b"
    rf"|(?:\bnot|n't|n’t) (?:\w+ ){{0,2}}?{NEGATED_VERB}|\bcould not\b|\bcannot\b|\bcan't\b|\bunable\b|\brefuses?\b|\bno kernel|\bunavailable\b|(?<!=)(?<!= )\bFalse\b|\b(?:found|finds?|sees?|does|shows|lists?) (?:nothing|no)\b|\bno (?:\w+ ){{0,2}}(?:GPUs?|devices?|cards?|CUDA)(?: \w+){{0,3}} (?:found|available|detected|seen|visible|supported|used)\b|\bno (?:GPU|CUDA) (?:support|acceleration|device)\b"
    r"|(?:does|do|did|is|are|was|were)(?: not|n't)(?: help\w*)?(?: me)? ?(?:[.,;!]|$)|\b(?:dis)?appears?\b(?! to)|\bvanish\w*|\b(?:is|are|gets?) (?:gone|lost)\b|\b(?:black|blank|green|grey|gray|garbled?|garbage|gibberish|noisy?|artifacts?|nonsense)\b|\bidl(?:e|es|ing)\b|(?<![\d.])0 ?%"
    r"|\b(?:reboots?|shuts? (?:off|down|itself)|turns? (?:itself )?off|powers? (?:itself )?off|blue ?screen|BSOD|(?:PC|computer|machine|system) restarts?)\b|\b(?:screen|display|monitor|PC|computer|machine|system|it|laptop|desktop)\b (?:just |then |simply )?(?:switch\w*|turn\w*|go(?:es|ing)?|went|power\w*) (?:\w+ )?(?:off|dark|dim|blank)\b|\bexit(?:ed)?(?: with)?(?: (?:code|status))?:? ?-?[1-9]\d{0,2}\b|device_count\(\)\W{1,12}0(?!\d)|\bmissing\b|\bbroken?\b|\bcorrupt\w*|\bNaNs?\b|\bsits there\b|\bstops (?:after|at|in|when|before|responding)\b|\bonly (?:one|1|two|2|a single) (?:\w+ )?(?:is )?(?:found|visible|detected|seen|shown|used)\b|\bwhere (?:is|are) my\b|\bdoes nothing\b|\bsilent|\bbugs?\b|\bgpu crash dump|\bdevice removed\b"
    r"|\b(?:falls?|falling) back\b(?! (?:in)?to (?:the )?(?:xpu|mps|cuda|gpu|rocm)\b)|\binstead of (?:the |my )?(?:gpu|cuda)|\b(?:uses?|using|on|with) (?:the |my )?(?:cpu|igpu)\b(?: (?:only|instead)\b)?|\bonly (?:the )?cpu\b|\bworked (?:until|before|yesterday|last)\b|\bused to work\b|\bstopp?(?:s|ed) (?:working|using|seeing|detecting|finding)\b|\b\d{2,3} ?% CPU\b|\b(?:gpu|util\w*)(?: \w+){0,2}[ :]{1,3}(?:only |about |at |just )?[0-9] ?(?:%|percent)\b|\bno longer\b"
    # zh, ja, ko
    r"|报错|错误|失败|无法|不能(?!忽)|不了|不到|不行|不动|不工作|没(?:有)?(?:反应|识别|用上|使用)|用不|认不|识别不|崩溃|闪退|死机|蓝屏|黑屏|花屏|重启|关机|卡(?:住|死)|掉卡|溢出|爆显存|怎么回事"
    r"|エラー|できな|できま?せん|ません(?!か)|ない(?:です|の|。|\.|$)|落ち|固ま|止ま|フリーズ|クラッシュ|失敗|真っ黒|再起動|シャットダウン"
    r"|오류|에러|실패|안 ?(?:됨|되|돼|됩|써|쓰)|못 ?(?:하|합|해|잡|찾)|않(?:습|아|는|음)|멈(?:추|춰|춤|췄)|튕|꺼(?:지|져|짐)|재부팅|인식.{0,4}(?:못|안)"
    # ru, de, fr, es, pt
    r"|ошибк|сбо[йи]|не (?:работ|вид|использ|запуск|могу|удал|уда[её]т|наход|определя|груз|обуча|запуст)|падает|вылета|завис|выключа|перезагр|ч[её]рный экран"
    r"|\bfehler|\babsturz|st(?:ü|ue)rzt|h(?:ä|ae)ngt|bricht ab|\b(?:geht|l(?:ä|ae)uft|funktioniert|erkennt|findet|sieht|nutzt|startet|erkannt|gefunden|benutzt|genutzt)\b[^.?!\n]{0,30}\b(?:nicht|keine?n?)\b|\b(?:nicht|keine?) (?:\w+ ){0,2}(?:erkannt|gefunden|benutzt|genutzt|unterst)|nur (?:auf )?(?:der |die )?CPU|schwarz"
    r"|\berreur|\bplante|\bbloqu|\bfige|\bne (?:\w+ ){1,3}pas\b|\bn'(?:\w+ ){1,3}(?:pas|aucun)|\b[ée]chou|[ée]cran noir|red[ée]marre|s'[ée]teint"
    r"|\bfalla\b|\bfallo\b|\bno (?:me |se |lo |la )?(?:funciona|detecta|usa|reconoce|ve\b|va\b|puedo|arranca|encuentra|carga|utiliza)|cuelga|colgad|congela|se cierra|se apaga|se reinicia|pantalla (?:negra|azul)"
    r"|\bn[aã]o (?:\w+ )?(?:funciona|detecta|usa|reconhece|consigo|roda|inicia|encontra|carrega|utiliza)|\btrava|\berro(?:s|r(?:es)?)?\b|desliga|reinicia|tela (?:preta|azul)"
    r"|\bXid\b"
)
"""Words that mention a failure."""
NOT_SEEN = lazy(
    r"(?i)\b(?:gpu|cuda|card|graphics card)s?\b[^.\n]{0,24}\bnot (?:being )?(?:detected|found|seen|recogni[sz]ed|picked up)\b|\b(?:not|n't) (?:detect|find|see|recogni[sz]e)\b[^.\n]{0,20}\b(?:gpu|cuda|card)\b|(?:检测|识别|认)不(?:到|出)(?:显卡|GPU|cuda)"
)
"""A person's statement that a program does not see the GPU. It is refuted if the program prints the
GPU's name."""
SLOW = Alternatives(
    r"\bslow(?!er than (?:on )?(?:the |my )?cpu)(?:er|ly|ness)?\b|(?<!may )(?<!will )(?<!can )(?<!might )(?<!could )\btakes? (?:\S+ ){0,3}(?:hours?|minutes?|min\b|days|forever|ages)|很慢|太慢|慢得|遅すぎ|遅い|느려|느립|медленн|langsam|\blente?s?\b|lento|lentid|devagar"
)
"""A complaint that something is slow. The GPU may be unused, unless the text shows that it
computes."""
OUTSIDE = lazy(
    r"(?i)\bgam(?:es?|ing)\b|游戏|ゲーム|게임|\bигр|\bSpiele?n?\b|\bjeux?\b|\bjuegos?\b|\bjogos?\b|\bblender\b|\bnvidia-smi\b(?=[^.\n]{0,24}\b(?:works?|fine|ok))"
)
"""Things that work with any driver, so they prove nothing about torch."""
CRASH = lazy(
    r"(?i)\bcrash\w*|\bseg(?:fault|mentation)|\bcore dumped\b|\bkilled\b|\babort\w*|\bexit(?:ed)?(?: with)?(?: code)?:? ?-?[1-9]\d*\b|\b(?:closes|dies|quits|terminat\w+|disappears)\b"
    r"|崩溃|闪退|退出|クラッシュ|落ち|강제 ?종료|튕|вылета|падает|\babst(?:ü|ue)rz\w*|st(?:ü|ue)rzt|\bplante\b|se cierra|\bfecha sozinho"
)
"""Words that say that a program's process ended without a Python exception."""
SOLVED = Alternatives(
    r"\b(?:it|this|that|issue|problem|everything|update|edit)(?:'s| is| was| has been| got)?:? (?:now )?(?:all )?(?:solved|fixed|resolved)\b|\bI (?:\w+ )?(?:solved|fixed|resolved) (?:it|this|the)\b|^\W*(?:solved|fixed|resolved)\b"
    r"|\bconfirmed (?:as )?(?:fixed|solved|resolved) (?:in|on|with|by)\b|\b(?:issue|problem|bug) (?:is |was |now )?(?:fully|completely) (?:solved|fixed|resolved)\b"
    r"|\b(?:it|all|everything)(?:'s| is) (?:now )?(?:ok(?:ay)?|fine|good|working)(?: again)? now\b|\bnow (?:it|all|everything)(?:'s| is) (?:ok(?:ay)?|fine|good|working)\b"
    r"|\b(?:works?|working|runs?|running) now\b|\bnow (?:it |everything |all )?(?:works|runs|sees|uses|prints)\b"
    r"|\bafter (?:the|that|this|an?|my) (?:\w+ )?(?:upgrade|update|downgrade|reinstall\w*|reboot|restart|change|fix)\b[^\n]{0,60}?\b(?:correctly|properly|successfully|fully|finally) (?:uses?|detects?|sees?|finds?|offloads?|runs?|loads?|trains?|works?)\b"
    r"|(?<!未)(?<!没有)(?<!没)解决了|搞定|解決しました|直りました|해결(?:했|됐|되었)|решил[аи]? (?:проблему|вопрос)|проблема решена|теперь (?:вс[её] )?работает|gel(?:ö|oe)st|l(?:ä|ae)uft jetzt|funktioniert jetzt|r[ée]solu|(?:marche|fonctionne) maintenant|solucionad|resuelto|ahora (?:s[ií] )?funciona|resolvid|agora funciona"
)
"""A person's statement that an earlier failure is fixed."""

# --- what shows that a GPU computes ---------------------------------------------------------------

WORRY = Alternatives(
    # Things that get worse while the program runs.
    r"\b(?:it|speed|that|performance|throughput|fps|rate|usage|utili\w+|everything) (?:\w+ ){0,2}?(?:drops?|falls?|sinks?|goes down|decreas\w+|degrad\w+)\b(?! ?(?:like|by design))|\b(?:memory|v?ram|usage|it) (?:\w+ ){0,3}?(?:grows?|keeps? (?:growing|increasing|rising|climbing)|fills? up)\b|\b(?:memory )?leaks?\b|\bunresponsive\b|\blags?\b"
    r"|\b(?:terminal|window|program|app|process|session|kernel|console|server|script|it) (?:just |then |simply |suddenly )?(?:closes|dies|ends|quits|exits|restarts)\b|\bloss\b[^.\n]{0,40}\b(?:stays?|remains?|is) (?:exactly |always )?(?:the same|constant|flat|at)\b"
    # Work that is done on the CPU instead of the GPU.
    r"|(?<![\d.])[0-9] ?% (?:GPU|util|usage|load)|\bCPU (?:\w+ )?(?:at|to) (?:9\d|100) ?%"
    # Results that others get, or that were promised.
    r"|\b(?:everyone|everybody|anyone|someone) else\b|\b(?:others|colleagues?|people|they)(?:'s)? (?:\w+ )?(?:gets?|do(?:es)?|posts?|reach\w*|reports?|claims?|sees?)\b|\b(?:promises?d?|advertised|supposed to|should (?:be|get|reach|do|take|run|have))\b"
    r"|\bwhat(?:'s| is| am I doing| could be| might be| am I) (?:\w+ )?wrong\b|\bmissing something\b|\btak(?:es?|ing) (?:this|so|too|that|very) long\b|\bonly (?:the )?(?:Intel|AMD|integrated|iGPU|onboard|one|half)\b|\bhow (?:do|can|to) (?:I |we )?(?:make|get|force|let|fix|solve)\b"
    r"|越来越(?:慢|高|大)|掉到|降到|泄漏|别人|怎么(?:才|办|让)|下がっ|増え続け|リーク|しか出|他の人|느려지|떨어(?:지|집|졌)|\bfällt (?:auf|ab)|\bsinkt\b|\bwächst\b|\bandere schaffen|падает до|растёт|утечк|у других|\bbaja a\b|\bcrece\b|los demás|\bbaisse\b|\baugmente\b|les autres|\bcai para\b|\bcresce\b|os outros"
)
"""A person's statement that something gets worse, or that others get better results. It names no
failure, but the person has a problem."""
ON_CPU = lazy(
    r"(?im)^\W*(?:\S{1,40}[: ] ?)?(?:using|selected|torch|running on|compute|accelerator)?:? ?device(?: (?:type|is|set to|used))?:? ?\[?['\"]?cpu\b|\bGPU available: (?:False|True[^\n]{0,16}, used: False)|\bUsing CPU\b|\bno GPU found\b|\bCUDA:? (?:not available|unavailable|False)\b"
)
"""A line in which a program names the CPU as its device."""
A_GPU = Alternatives(
    r"(?:\b|(?<=\d[x×])|(?<=[\u3040-\u9fff]))(?:[RG]TX ?\d{3,4}|[2-5]0[5-9]0(?: ?Ti)?(?![\d.,]\d)|[ABH]\d00|A\d{1,2}00?G?|L40S?|L4\b|T4|V100|P100|MI\d{3}|RX ?\d{4}|[5-9]\d00 ?(?:XTX?|GRE)|Arc [AB]\d{3}|[AB][357][578]0\b|M[1-5] (?:Max|Pro|Ultra)?|Jetson)"
    # NCCL and torch's CUDA sources only run on GPUs.
    r"|\bNCCL INFO\b|\bProcessGroupNCCL\b|[\\/]cuda[\\/]\w+\.(?:cpp|cuh?)\b"
    r"|--device cuda|\bcuda:\d\b|\b(?:on|uses?|the|my|a|an) (?:\w+ ){0,2}GPUs?\b|\bGPU(?:s| (?:memory|utili[sz]ation|usage|occupation|is|at|runs))\b|\bGB10\b|DGX Spark|显卡|グラボ|그래픽|видеокарт|Grafikkarte|carte graphique|tarjeta|placa de v[ií]deo|\bxpu\b|\bmps\b"
)
"""A GPU that a text mentions, by its name or its device."""
DEVICE_SHOWN = Alternatives(
    r"\b(?:using|selected|compute|torch|running on|loaded on|accelerator)?:? ?\bdevices?(?: \w+){0,2}?(?: is)?: ?\[?['\"]?(?:cuda|xpu|mps|rocm|hip|(?:NVIDIA|AMD|Intel)\b[^\n]{2,60}\(cuda)(?::\d)?"
    r"|\bget_device_name\b[^\n]{0,12}\b(?:says?|returns?|prints?|gives?|shows?|is)\b|\bget_device_name\(?\d?\)? ?(?:->|=>|=|:) ?['\"]?\w"
    r"|\bdetected platform:? (?:cuda|rocm|xpu)\b|\bUsing (?:the )?(?:cuda|CUDA|ROCm|XPU|MPS|Metal)(?: backend| device|:\d)\b"
    r"|\boffloaded ([1-9]\d{0,3})/\1 layers to GPU|\d ?[MG]B +100% GPU\b|\bGPU KV cache (?:size: ?[\d,]{2,}|usage: ?\d)|\bUsing Flash ?(?:Attention|Infer) (?:version \d |backend)"
    # Lines that a program prints only if it measures its GPU or was given a device.
    r"|\bmfu:? ?[1-9]\d?(?:\.\d+)? ?%|\bthroughput per GPU\b[^\n]{0,24}\d|\bmax_mem: ?[1-9]\d{2,}M|\bmemory: ?[1-9]\d{2,5}  ?(?:\w+_)?loss|\bGPU available: True(?: \(\w+\))?, used: True|\bCreated device /job:\S+/device:GPU:\d with [1-9]|\[CudaDevice\(id=\d|\busing (?:device )?CUDA\d\b|\bCUDA:\d \((?:NVIDIA|Tesla|GeForce|Quadro)[^)]{2,60}\)|\bNum GPUs = [1-9]"
    r"|\d+MiB ?/ *\d+MiB ?\| +(?:[2-9]\d|100)%[^\n]*\|\n(?:[^\n]*\n){1,40}?[^\n]* C (?:\+G )?[^\n]*python\S* +\d{3,}MiB"
)
"""A line in which a program names the device that it uses."""
FOUND_SHOWN = lazy(
    r"(?i)\blibrary=(?:cuda|rocm|metal|oneapi|cuda_v\d+)\b|\bggml_(?:cuda|hip|sycl|vulkan|metal)_init: found [1-9]\d{0,2} "
)
"""A line in which a program lists a GPU that it found and may use."""
AVAILABLE_SHOWN = lazy(
    r"(?i)_XpuDeviceProperties\(name=|(?<!is )\b(?:cuda|xpu|mps|gpu|rocm|hip)(?:\.is)?[ _](?:is )?available\b(?:\(\))?\)?[^.\n]{0,24}?\n?[>\s\W]{0,10}\bTrue\b|\b(?:cuda|xpu|mps)\.is_available\(\)[^\n]{0,80}\n(?:>>> |Out\[\d+\]: )?True\b|\+(?:cu\d{2,3}|rocm[\d.]+|xpu)[, )'\"\n]{1,4}(?:['\"]?\d{1,2}\.\d[\d.]{0,6}['\"]?[, )\n]{1,4})?True\b"
)
"""torch's own answer that it sees the GPU."""
SERVER_SHOWN = lazy(
    r"(?i)\bApplication startup complete\b|\bUvicorn running on\b|\bserver is listening on\b|\bTo see the GUI go to\b|\bRunning on (?:local )?URL\b|\blistening (?:on|at) \S*:\d{2,5}\b|\bPrompt executed in\b"
)
"""A line that shows that a server is running or has answered a request."""
TRAINING_SHOWN = lazy(
    r"(?i)['\"]loss['\"]: ?\d[\d.e-]*|\b(?:train_)?loss[=: ]{1,3}\d+\.\d+|\bepoch[ :=\[]{0,3}\d+ ?/ ?\d+|\d+ ?%\|[^|\n]{0,60}\| ?\d+/\d+ \[|\btrain_runtime\b|\bTraining (?:completed|finished)\b"
)
"""Lines that a training prints while it makes progress."""
SPEED = lazy(
    r"(?i)(?<![\w.])\d[\d.,]{0,8} ?(?:it/s|its/s|s/it|sec(?:onds?)?/it|tokens?/s(?:ec(?:ond)?)?|tok/s|t/s\b|tps\b|tokens? (?:a|per|each) second|token(?:s)? pro Sekunde|tokens? par seconde|tokens? por segundo|токен\w* в секунду|samples?/s\w*|im(?:g|ages?)/s\w*|fps\b|steps?/s\w*|ms/(?:step|iter\w*|batch|token|image)|TFLOPS)"
    r"|\bscal(?:es|ing) (?:\w+ )?\d\.\d+ ?[x×]|\bsteps? takes? ~?\d[\d.]{0,6} ?s(?:ec\w*)?\b|(?<![\w.])\d[\d.,]{0,8} ?(?:ms|s|sec(?:onds?)?|秒|сек\w*|Sekunden)(?: ?/ ?| (?:per|a|an|each|pro|на|par|por) )(?:step|batch|image|iter\w*|epoch|token|frame|item|Bild|Schritt|шаг)"
    r"|\b(?:step|iter\w*|epoch|batch) \d{1,6}: ?\d[\d.]* ?(?:ms|s)\b|\b\d{3,4}(?: ?(?:px|x ?\d{3,4}))?,? in ~? ?\d[\d.]{0,6} ?(?:s|sec\w*)\b"
    r"|\b(?:on|with|using|auf|sur|на) (?:my |an? |the |meiner |ma )?(?:RTX |GeForce |GTX )?(?:[2-5]0[5-9]0\w{0,3}(?: Ti| Super)?|A100|H100|A6000|V100|L40S?|T4)\b[^.\n]{0,24}?[:=,]? ?\d[\d.,]{0,6} ?(?:ms|s|sec\w*|min\w*)\b"
    r"|(?:每|一)(?:个)? ?(?:step|步|张|轮|epoch)[^。\n]{0,6}?\d[\d.]* ?(?:秒|ms|分钟)|\d[\d.]* ?(?:token|步|张)/?(?:每)?秒|1 ?(?:ステップ|エポック|枚)[^。\n]{0,6}?\d[\d.]* ?(?:秒|分)|(?:스텝|에포크)당? ?\d[\d.]* ?(?:초|분)"
)
"""A speed, in the units that programs and people use."""
TRAINS_WELL = lazy(
    r"(?i)\bloss(?:es)? (?:go(?:es)?|is going|decreas\w+|keeps? (?:going|falling)|falls?|drops?|converges?)(?: down)?\b|\b(?:epochs?|training|it) (?:finish(?:es|ed)?|completes?|runs? through)\b|\b(?:trains?|training|fine-?tuning|inference) (?:runs?|works?|is running|goes (?:on|fine)|fine|well|ok)\b|\bserves? (?:\w+ )?(?:fine|well)\b|\b(?:can|could) run \S+(?: \w+)? on (?:a|the|my|an)\b|\bI(?: am|'m)? (?:currently |now )?(?:train|fine-?tun|run|us)\w* [^.\n]{0,40}?\bon (?:an?|my|the|one|two|[1-8]) ?x? ?\w"
    r"|\b(?:trains|runs)\b(?: (?:and|\w+)){0,4} on (?:an?|my|the|one|two) (?:(?:Intel|AMD|NVIDIA) )?(?:Arc|Radeon|GeForce|[RG]TX|RX) ?\w"
    r"|\btrained\b[^.\n]{0,40}\b(?:overnight|fine|well|for (?:hours|days|\d+ ?h\w*)|without)\b|\bloss(?:es)? (?:is|was|are|looks?) (?:fine|good|ok(?:ay)?|normal)\b|\bresults? (?:are |is |look )?(?:correct|right|good|fine)\b|\b(?:at|to) (?:9\d|100) ?(?:%|percent)\b|\b[4-9]\d ?% (?:GPU )?(?:util\w*|usage|load)\b|\b(?:I|we) ran (?:an? )?(?:[\w-]+ ){0,3}(?:fine-?tun\w*|training|epochs?)\b"
    r"|\b(?:gpu|card|util\w*)s?\b[^.\n]{0,40}\b[1-9]\d? ?(?:and|to|-|–) ?\d{2} ?(?:%|percent)"
    r"|\b(?:each|every|an?) (?:spike|peak) (?:\w+ ){0,3}(?:is|=) (?:a|an|one) (?:training )?(?:epoch|batch|step)\b"
    r"|(?:训练|学习|推理|微调)[^。,\n]{0,6}?(?:起来|正常|没问题|跑通|可用)|功能可用|(?:学習|推論)(?:は|も|が)?(?:問題なく|正常に|普通に)(?:動|でき|進)|(?:학습|훈련|추론)(?:은|는|이)? ?(?:정상|잘|문제 ?없이)"
    r"|обучение идёт|обучается (?:нормально|хорошо)|Training läuft|(?:l')?entra[iî]nement (?:tourne|marche|fonctionne|se passe bien)|\b(?:entrena|entrenamiento) (?:sin problemas|bien|funciona)|(?:treina|treinamento) (?:sem problemas|bem|roda|funciona)"
)
"""A person's statement that a training makes progress or a program runs."""
WORKS_THERE = lazy(
    r"(?i)\b(?:confirm\w*|report\w*|verified|tested)\b[^.\n]{0,16}\b(?:this|it) (?:also |still |now )?works?\b|\bwithout (?:any )?(?:fuss|trouble|a hitch|hiccups?)\b|(?<!smi )(?<!smi` )(?<!driver )\b(?:works?|worked|runs?|ran|running|loads?|answers?|responds?|generates?|trains?|starts?|infers?) (?:perfectly|great|fine|well|normally|correctly|flawlessly|as expected|nicely|smoothly|like a charm|for me)\b|(?<!not )(?<!n't )\b(?:works?|runs?|trains?|generates?) (?:on|with|for) (?:[\w.-]+ ){1,4}?(?:just |perfectly |absolutely )?(?:fine|great|well|perfectly|flawlessly|without (?:problems|issues))\b|\blooks (?:good|fine|ok)(?: to me)?\b|\bworks too\b|\b(?:managed|was able|were able|got it|I got|we got|succeeded)\b[^.\n]{0,60}?\b(?:running|working|to (?:run|work)) (?:on|with|using) (?:the |my |an? )?(?:GPU|card|Radeon|Arc|iGPU|[RG]TX|RX ?\d)|\b(?:really |very |quite |so |I'm )(?:happy|pleased)\b|\bsees? and uses? (?:the|my) GPU\b"
    r"|\b(?:tested|verified|confirmed|checked) (?:on|with) (?:my |an? |the |two )?(?:\S{1,16} ){0,4}?(?:GPUs?|cards?|[RG]TX ?\d{3,4}|machine|Arc \w+)\b|\ball good\b|一切正常|运行正常|正常运行|可以正常|問題なく動|正常に動|動作(?:できました|しました)|動きました|잘 (?:됩|돌아|작동)|정상(?:적으로)? ?(?:작동|동작)"
    r"|funktioniert (?:einwandfrei|super|gut)|l(?:ä|ae)uft (?:\w+ ){0,4}(?:wunderbar|super|gut|einwandfrei|problemlos)|вс[её] (?:отлично |хорошо |нормально )?работает|работает (?:отлично|нормально|хорошо)|(?:tout )?(?:fonctionne|marche) (?:bien|tr[eè]s bien|parfaitement)|tout fonctionne|(?:funciona|va todo|todo va|corre) (?:bien|perfectamente|perfecto)|va todo bien|funciona (?:perfeitamente|bem)|roda (?:bem|liso)"
)
"""A person's plain statement that something works."""
# "Does not support SM 12.1?", but not "Why does it not see my GPU?".
ONLY_ASKS = lazy(
    r"(?i)^(?!.*\b(?:why|how|what|where|which|warum|wie|pourquoi|comment|por qu[ée]|почему|как)\b)(?:[^.!]|\.(?=\d))*\?\s*$"
)
"""A yes-or-no question. It does not report a failure that somebody has seen."""
CONTRAST = lazy(
    r"(?i)\b(?:but|however|except|although|though|whereas|unless|still)\b|但是?|不过|可是|しかし|ですが|だけど|하지만|그런데|\baber\b|\bно\b|\bmais\b|\bpero\b|\bmas\b"
)
"""A word such as "but", which introduces something that does not work."""

# --- what the question is about -------------------------------------------------------------------

WONDERS = lazy(
    r"(?i)\b(?:want|wonder\w*|understand|like to know|curious|why|how (?:to|can|do))\b|希望|想(?:知道|问|了解)|为什么|怎么|なぜ|どう|왜|어떻게|방법|\bwarum\b|\bwie\b|\bpourquoi\b|\bcomment\b|por qu[ée]|\bc[óo]mo\b|почему|\bкак\b"
)
"""A sentence that asks without a question mark."""
TOPICS = {
    "result": lazy(
        r"(?i)\b(?:different|wrong|inaccurate|unequal|inconsistent|mismatch\w*)\b[^.\n]{0,30}\b(?:results?|outputs?|values?|numbers?|digits?)\b|\b(?:results?|outputs?|values?|digits?)\b[^.\n]{0,60}?\b(?:differs?|different|wrong|not (?:equal|the same)|deviates?|diverges?|mismatch\w*)\b"
        r"|\berrors? of (?:about |up to |around )?\d?[\d.]*e-\d|\b(?:numerical|rounding) (?:errors?|differences?)\b|\bprecision\b[^.\n]{0,30}\b(?:loss|lower|differ\w+|lost)|结果[^。\n]{0,8}(?:不一致|不同|不一样)|精度[^。\n]{0,6}(?:不|差|损失)|結果が(?:異な|違)|결과가 (?:다르|달라)|результат\w*[^.\n]{0,20}отлича|Ergebnis\w*[^.\n]{0,20}(?:anders|unterschied|abweich)"
    ),
    "first run": lazy(
        r"(?i)\b(?:first|1st) (?:step|run|image|batch|iteration|request|generation|inference|forward|call|start|prompt|token)s? (?:\w+ )?(?:is|are|was|takes?|took)\b[^.\n]{0,24}\b(?:slow\w*|long\w*|minutes?|min)\b"
    ),
    "compile": lazy(r"(?i)\btorch[._]compile\b|--compile\b"),
    "loader": lazy(
        r"(?i)\bnum_workers\b|\bdata ?loaders?\b|\bpersistent_workers\b|\bprefetch\w*|\bdelay between (?:the )?(?:epochs|batches|steps)\b|\b(?:utili[sz]ation|usage|occupation)\b|利用率|使用率|Auslastung|загрузка"
    ),
    "memory": lazy(
        r"(?i)\b(?:v?ram|memory)\b[^.\n]{0,60}\b(?:higher|more|less|used?|usage|lower|reduce|consum\w+|save|saving|need|fit)|\b(?:higher|more|less|reduce|lower|save|use[sd]?|consum\w+)\b[^.\n]{0,40}\b(?:v?ram|memory|GB (?:used|of))\b|显存|VRAM|GPU ?メモリ|메모리|видеопамят|памяти|(?:Grafik|GPU-?)speicher|m[ée]moire (?:vid[ée]o|GPU)|VRAM|memoria (?:de video|GPU)|mem[oó]ria"
    ),
    "warnings": lazy(
        r"(?i)\bwarnings?\b|\bdeprecat\w+|警告|경고|предупрежден|Warnung|avertissement|advertencia|\bavisos?\b"
    ),
    "speed": lazy(
        r"(?i)\bspeeds?(?:up)?\b|\bslow(?:er|ly|down)?\b|\bfast(?:er)?\b|\bperformance\b|\bbenchmarks?\b|\bthroughput\b|\boptimi[sz]\w*|\baccelerat\w*|\bimprov\w*|\btune\b"
        r"|慢|快|提高|加速|优化|速度|遅い|速[くいさ]|느리|빠르|속도|медленн|быстр|скорост|langsam|schnell|geht da noch mehr|\blente?s?\b|rapide|lento|rápido|velocidad|vitesse"
    ),
    "normal": lazy(
        r"(?i)\bexpect(?:ed)?\b|\bnormal\b|\b(?:is|was) (?:this|that|it) (?:right|ok(?:ay)?|correct)\b|\banything else\b|\bmy friend\b|正常|普通|정상|нормальн|richtig so|normale?\b"
    ),
}
"""A topic that a person with a working GPU asks about -> a pattern for its words. The first topic
that matches counts."""
