"""Reads what a person says in their own sentences: a dozen plain statements, matched by words.

Names and numbers (cards, drivers, versions, systems) are read by other readers. A statement shows a
symptom or a fact about the person's situation; it never proves a cause by itself.
"""

from __future__ import annotations

import re
from functools import cache

from gpusetup.evidence.wording import is_program_output
from gpusetup.messages.row import row
from gpusetup.messages.search import Text, line_source
from gpusetup.model.machine import Event
from gpusetup.model.patterns import lowered
from gpusetup.report.facts import SHOWN_CHARACTERS, Claim, Facts

CHARACTERS_READ = 12_000
"""The most characters of prose that are read. What a person writes in a post is shorter."""

# --- which lines a person wrote -------------------------------------------------------------------

PRINTED = re.compile(
    # In Markdown, a line that is indented by four spaces is code.
    r"^ {4}|^\s*(?:File \"|Traceback|at \w|\||\+-|\$ |>>> |>> |# |\(\w+\) .*[$#] |\d{4}-\d\d-\d\d|\[\d|[A-Z]:\\|/|\w+[=:]\S|-+$|\.{3}|\w+Error\b|\w+Warning\b)"
    r"|^[^\n:]{0,60}\s{2,40}:|^\s*(?:import|from|def|class|return|print|pip3?|conda|sudo|apt|docker|python\S*|nvidia-smi|git|export|cd)\b \S+(?: \S+)?$"
)
"""The beginning of a line that a program printed, or that somebody typed into a shell."""
LETTER = re.compile(r"[^\W\d_]")
# Japanese syllables, Chinese characters, Korean syllables.
WIDE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
LETTERS_OF_PROSE, WIDE_LETTERS_OF_PROSE = 0.55, 0.3
"""The smallest share of letters in a line of prose, and in one with Chinese, Japanese or Korean
letters. Measured on the labelled reports, a share of about 0.5 separates prose from logs."""
WORDS_OF_PROSE, WIDE_OF_PROSE = 3, 4
"""The fewest words in a line of prose, and the fewest letters of a wide script."""


def is_prose(line: str) -> bool:
    """Whether a line looks like a sentence that a person wrote.

    >>> is_prose("My card stays at 0 % all day."), is_prose("2.6.0+cu124 True"), is_prose("显卡认不出来")
    (True, False, True)
    """
    sentence = line.strip()
    if not sentence or PRINTED.search(line):
        return False
    # Prose consists of letters; versions, paths and tables of digits and signs.
    letter_share = len(LETTER.findall(sentence)) / len(sentence.replace(" ", ""))
    if len(WIDE.findall(sentence)) >= WIDE_OF_PROSE:
        return letter_share >= WIDE_LETTERS_OF_PROSE
    return len(sentence.split()) >= WORDS_OF_PROSE and letter_share >= LETTERS_OF_PROSE


def prose_lines(text: Text) -> dict[int, str]:
    """The lines that a person wrote, by their number (from 1), up to `CHARACTERS_READ` characters."""
    lines: dict[int, str] = {}
    characters = 0
    for number, line in enumerate(text.lines, 1):
        if number in text.logged or not is_prose(line):
            continue
        words = " ".join(line.split())
        characters += len(words)
        if characters > CHARACTERS_READ:
            break
        lines[number] = words
    return lines


GPU = r"(?:gpus?|graphics? ?cards?|video ?cards?|[rg]tx ?\d{3,4}\w{0,6}|[2-5]0[5-9]0(?: ?ti)?|cuda|card)"
CARD = (
    r"(?:显卡|顯卡|gpu|cuda|独显|グラボ|그래픽 ?카드|grafikkarte|karte|carte(?: graphique)?|tarjeta(?: gráfica)?"
    r"|placa(?: de vídeo)?|видеокарт\w|карт[уа])"
)
STATEMENTS = (
    # It does not use the GPU.
    row("gpu-unused",
        rf"\b(?:not|n't|never) (?:even )?(?:us(?:e|ing|ed)|utili[sz]\w+|detect\w*|find(?:ing)?|see(?:ing)?|recogni[sz]\w+) (?:(?:my|the|any|its|our|nvidia) ){{0,2}}{GPU}\b"
        rf"|\b{GPU} (?:(?:is|was|are|usage|utili[sz]ation|stays|sits|does) (?:still |at )?)*(?:does nothing|not (?:being )?(?:used|detected|found|seen|recogni[sz]ed|picked up)|unused|idle|idling|0(?: ?- ?\d)? ?%)"
        r"|\b(?:falls?|falling|fell) back to (?:the )?cpu\b|\b100 ?% (?:on )?cpu\b|\b(?:runs?|running|only|still|everything|computes|stays) (?:(?:only|entirely|just|uses?|runs) ){0,2}(?:on |in )?(?:the |my )?(?:cpu|processor)\b|\bon (?:the )?cpu instead\b|\b(?:will use|uses|using) (?:only )?the (?:cpu|processor)\b|\bgpu acceleration (?:is )?not\b|\bno gpu acceleration\b"
        rf"|{CARD}[^,.\n]{{0,10}}(?:认不出|识别不|检测不到|没(?:有)?(?:被)?(?:使用|识别|用上)|不(?:识别|使用)|用不)|(?:不|没有?|无法)(?:使用|识别|检测到?|用上?)(?:到)?{CARD}|(?:只|还是|都)(?:用|在|走)(?:的)?cpu"
        rf"|{CARD}(?:が|を|は)?[^。\n]{{0,6}}(?:使われ|使え|使用され|認識され|検出され|認識し)(?:ません|ない|てい)|cpu(?:だけ|のみ|しか|で動)"
        rf"|{CARD}[를을가이는은]? ?(?:전혀 )?(?:사용|인식|감지)[^.\n]{{0,6}}(?:못|않|안)|cpu(?:로만|만)"
        rf"|{CARD}[^.\n]{{0,24}}\bnicht (?:benutzt|genutzt|verwendet|erkannt|gefunden)|\b(?:nutzt|benutzt|erkennt|findet|sieht)\b[^.\n]{{0,16}}{CARD} nicht|\bnur (?:auf der |die )?cpu\b"
        rf"|\b(?:n'utilise|ne (?:détecte|reconnaît|voit|trouve)) pas\b[^.\n]{{0,12}}{CARD}|tourne sur le (?:cpu|processeur)"
        rf"|\b(?:no|não|nao) (?:usa|utiliza|detecta|reconoce|reconhece|ve|encuentra|encontra)\b[^.\n]{{0,12}}{CARD}|\b(?:solo|só|apenas) (?:usa|en|na) (?:la |a )?cpu\b"
        rf"|не (?:использует|видит|находит|определяет|задействует)(?:ся)?[^.\n]{{0,12}}{CARD}|{CARD} не (?:используется|видна|определяется)|только на (?:cpu|процессоре)"),
    # The GPU waits for its input.
    row("gpu-starved",
        r"\b(?:gpu|utili[sz]ation|usage)\b[^.\n]{0,40}\b(?:jumps?|fluctuat\w+|oscillat\w+|goes up and down|drops to 0|sawtooth)\b|\blow gpu (?:utili[sz]ation|usage)\b|\bgpu (?:waits|is waiting|starv\w+) for\b|\bbatches come too slow\w*"
        r"|利用率(?:很|太|一直)?(?:低|上不去|忽高忽低|波动)|gpu-?auslastung (?:springt|schwankt)|загрузка (?:gpu|видеокарты) (?:скачет|прыгает)|gpu使用率が(?:上下|低)|gpu ?사용률이 (?:낮|오르락)|uso de (?:la )?gpu (?:bajo|oscila|baixo)|utilisation du gpu (?:faible|oscille)"),
    # A run does not go on.
    row("run-hangs",
        r"\b(?:hangs?|hung|stuck|deadlock\w*|freezes|froze|stalls)\b|\bnever (?:returns|finishes|ends)\b|卡住|卡死|固まる|止まった|멈(?:춰|췄|춤)|hängt|bleibt stehen|se bloque|se cuelga|se queda colgad\w|trava\b|завис\w*"),
    # A program ends without a word.
    row("silent-crash",
        r"\b(?:crash\w*|dies|exits?|closes|quits)\b[^.\n]{0,24}\b(?:without|no) (?:any |an )?(?:error|message|output|log|traceback)|闪退|エラーなしで落ち|튕|stürzt ohne|se ferme sans|se cierra sin|fecha sem|вылетает без"),
    # The machine switches off.
    row("machine-powers-off",
        r"\b(?:pc|computer|machine|system|workstation|server) (?:shuts (?:down|off)|turns off|powers off|switches off|reboots|restarts)\b|自动(?:关机|重启)|電源が落ち|(?:컴퓨터|pc)가 (?:꺼|재부팅)|(?:pc|rechner) (?:geht aus|startet neu)|(?:pc|ordinateur) s'éteint|(?:pc|ordenador) se apaga|computador desliga|(?:компьютер|пк) (?:выключается|перезагружается)"),
    # There is no NVIDIA GPU.
    row("no-nvidia-gpu",
        r"\b(?:no|without (?:an?)?|not have an?|don't have an?) ?nvidia (?:gpu|card|graphics)|没有(?:英伟达|nvidia|n卡)|nvidia(?:の)?gpu(?:が|は)(?:ない|ありません)|엔비디아 (?:gpu|그래픽카드)가 없|keine nvidia|pas de (?:carte|gpu) nvidia|(?:no tengo|sin) (?:gpu|tarjeta) nvidia|sem (?:gpu|placa) nvidia|нет (?:видеокарты|карты) nvidia"),
    # The package works in another place.
    row("ran-alone",
        r"\b(?:alone|by itself|on its own|standalone|separately|directly|in a (?:plain|fresh|separate|bare) (?:python|script|shell))\b[^.\n]{0,24}\b(?:works?|worked|runs?|ran|is fine)\b|\b(?:works?|worked|runs?|ran)(?: fine)? (?:alone|by itself|on its own|standalone|separately)\b|单独(?:跑|运行|执行)?(?:没事|正常)|単体では動|allein läuft|отдельно работает|seul fonctionne|solo funciona|sozinho funciona|단독으로는 (?:됩|작동)"),
    # Whose machine it is.
    row("cloud-machine",
        r"\b(?:azure|aws|ec2|gcp|google cloud|alibaba cloud|ovh(?:cloud)?|hetzner|oracle cloud|digitalocean|vultr|linode|scaleway|lambda cloud)\b|\bstandard_n[cdv]\w+|\b[gp][2-6](?:dn|de|d|e|en)?\.\d*x?large\b"),
    row("several-gpus",
        r"\b(?:[2-9]|[1-9]\d) ?x (?:nvidia )?(?:[a-z]{1,3}\d{2,3}|rtx|\d{4})|\b(?:two|three|four|eight|[2-9]) (?:gpus|cards)\b|\bmulti-?(?:gpu|node)\b|\btorchrun\b|\b(?:ddp|fsdp)\b|\btensor[- ]parallel|(?:两|多|双|四)(?:张|块)?卡|マルチgpu|다중 ?gpu|mehrere (?:gpus|karten)|plusieurs gpu|v[aá]rias gpu|нескольк\w+ (?:gpu|видеокарт)"),
    # The machine has a card of AMD.
    row("foreign-gpu",
        r"\b(?:have|own|use|on|my|got|only)(?: an?| my| the)? (?:amd|radeon)(?: (?:card|gpu|graphics))?\b(?! (?:processor|cpu|ryzen))|(?:显卡|グラボ|видеокарта|grafikkarte|carte|tarjeta|placa)[^.\n]{0,8}(?:amd|radeon)", vendor="amd", name="AMD GPU"),
    # Cards whose names are written in another script.
    row("foreign-gpu", r"镭龙|鐳龍|ラデオン|라데온|радеон|锐龙", vendor="amd", name="AMD GPU"),
    row("foreign-gpu", r"锐炫|銳炫|(?:英特尔|英特爾|インテル|인텔|интел) ?(?:arc|显卡|gpu)|(?:아크|арк) ?[ab]\d{3}", vendor="intel", name="Intel Arc GPU"),
    # Which engine and which Python it must be.
    row("container-engine",
        r"\b(?P<engine>cri-?o|containerd|k3s|rke2|microk8s)\b"),
    row("toolkit-installed",
        r"\b(?:container[- ])?toolkit (?:is |version |v)?(?P<version>1\.\d{1,2}(?:\.\d)?)\b|\bcontainer[- ]toolkit (?:is )?(?:already )?installed\b"),
    row("python-bound",
        r"\b(?:requires?|needs?|bound to|stuck (?:on|with)|only (?:works?|supports?|runs?)(?: with| on)?|limited to) python[ =]{1,3}(?P<python>3\.\d{1,2})\b(?! ?\+)|\bpython[ =]{1,3}(?P<python_>3\.\d{1,2})\b[^\n]{0,60}\b(?:cannot be (?:a )?newer|must stay|is required|only|no newer)\b"),
    # Something fails, in no other words.
    row("names-failure",
        r"\b(?:does(?: not|n't)|did(?: not|n't)|won't|not|stopped|cannot|can not|can't)(?: get it to)? work\w*\b|\berrors?\b|\bfails?\b|\bfailed\b|\bcrash\w*|\bbroken\b|\bout of memory\b|\b(?:so|very|too) slow\b|很慢|遅すぎ|느려|zu langsam|trop lent|muy lent|muito lent|медленн|\bbsod\b|\bblack screen\b|报错|错误|失败|崩溃|无法|黑屏|エラー|動きません|動かない|失敗|오류|에러|실패|안 ?(?:됩|돼)|fehler|funktioniert nicht|stürzt|erreur|ne (?:fonctionne|marche) pas|plante|\bfalla\b|no funciona|\berro\b|não funciona|ошибк|не работает|вылетает"),
)  # fmt: skip
"""Plain statements of people, in the words of nine languages and in lower case, which is searched
faster than any case; of each, the first match counts."""
DENIALS = re.compile(
    r"\b(?:no|without|any|zero) (?:\w+ )?(?:errors?|problems?|issues?|crash\w*)\b|\bnothing (?:is |was )?(?:broken|failed|wrong|fails)\b|\bif (?:it|something|the \w+) (?:fails|crashes)\b|没有?(?:报错|错误)|エラー(?:は|も)?(?:なく|ありません)|오류 ?없이|ohne fehler|sans erreur|sin errores|sem erros|без ошибок",
)
"""Words that deny a failure; they are removed before the statements are looked for."""


compiled = cache(re.compile)  # `re` itself keeps only the last 512 patterns.


def statements(text: Text) -> Facts:
    """What the person states, each statement once, and which lines are the person's own."""
    prose = prose_lines(text)
    own = [str(number) for number in prose if not is_program_output(text.lines[number - 1])]
    if own:
        yield Claim("report.sentences", " ".join(own), "report")
    numbers = list(prose)
    joined = "\n".join(prose.values())
    # Denials become spaces of the same length, so positions in `low` are positions in `joined`.
    low = DENIALS.sub(lambda denial: " " * len(denial[0]), lowered(joined))
    for statement in STATEMENTS:
        match = compiled(statement.pattern).search(low)
        if match is None:
            continue
        source = line_source(numbers[joined.count("\n", 0, match.start())])
        # `python_` is the group for the same value in another wording. The values keep their case.
        groups = {
            name.rstrip("_"): joined[match.start(name) : match.end(name)]
            for name, word in match.groupdict().items()
            if word
        }
        values = {**statement.values, **groups}
        quote = joined[match.start() : match.end()][:SHOWN_CHARACTERS]
        yield Event(kind=statement.kind, values=values, source=source, text=quote)


CHARACTERS_BEFORE_CARD = 40
"""The characters before a card's name in which words that belong to it are looked for."""
OTHER_CARD = re.compile(
    r"(?i)\b(?:old|older|previous|former|instead of|replaced|(?:upgraded|switched|moved|went) from|alte\w?|ancienne|vieja|antiga|стар\w{2}|from my)\b(?:(?! to\b)[^.\n]){0,24}$|(?:旧|以前|古い|이전)[^.\n]{0,8}$"
)
"""Words before the name of a card that is not the one in question."""


def is_another_card(flat: str, start: int) -> bool:
    """Whether the card that is named at `start` is a previous one or that of another machine.

    >>> is_another_card("on my old 3080 it worked", 10)
    True
    """
    return OTHER_CARD.search(flat[max(start - CHARACTERS_BEFORE_CARD, 0) : start]) is not None
