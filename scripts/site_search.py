"""Adds the pages of the findings to the site, and says what its search reads: of a finding's page
its messages.

A hook of mkdocs. The search matches the beginnings of words and weighs headings most, so a heading
that 160 pages share ("How to fix it") would hide the page with the message.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any


def on_files(files: Any, config: Any, **_: Any) -> Any:
    """The site's files with a page for each finding, made from its record."""
    # mkdocs loads a hook without its folder.
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    from finding_pages import markdown, shown
    from mkdocs.structure.files import File

    for record in shown():
        place = f"findings/{record.id}.md"
        files.append(File.generated(config, place, content=markdown(record)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The page, with what the search leaves out marked for Material's search."""
    from finding_pages import shown

    # The pages of findings are made here, so the pages in git can only name their index.
    ids = {record.id for record in shown()}
    markdown = re.sub(
        r"\[([a-z0-9-]+)\]\(((?:\.\./)?findings/)index\.md\)",
        lambda link: f"[{link[1]}]({link[2]}{link[1]}.md)" if link[1] in ids else link[0],
        markdown,
    )
    source = page.file.src_uri
    if source.startswith(("how-to/", "guides/")):
        # Two or three words are a topic. A message has more words, which no how-to contains.
        page.meta["search"] = {"boost": 2}
    if source == "changelog.md":
        page.meta["search"] = {"exclude": True}
    if source.startswith("findings/") and source != "findings/index.md":
        from finding_pages import headings_of

        # All messages, those too that the page leaves out because they made it too long. If no
        # message leads to the page, people search for what they see.
        record = next(record for record in shown() if record.id == Path(source).stem)
        page.meta["tags"] = words_of_messages(headings_of(record.id) or (record.means,))
        return without_shared_headings(markdown)
    if source == "findings/index.md":
        from finding_pages import markdown_index

        return f"{markdown}\n{markdown_index()}"
    return markdown


def words_of_messages(messages: tuple[str, ...]) -> list[str]:
    """The words of a page's messages, which the search weighs most.

    A search for `cuda` also finds longer words, and a rare one weighs most. So that it does not put
    its page first for every `cuda`, such a word is found in the page's text alone.

    >>> words_of_messages(("CUDA error: out of memory", "no CUDAExecutionProvider."))
    ['cuda', 'error', 'memory', 'no', 'of', 'out']
    """
    words = {word.strip(".") for word in re.findall(r"[\w.]+", " ".join(messages).lower())}
    return sorted(word for word in words if word and not word.startswith(BEGINNINGS))


BEGINNINGS = ("cuda.", "cuda_", "cudae", "cudam", "cudnn_", "nod", "notf", "noti")
"""Beginnings of rare words that start like common ones."""


def without_shared_headings(markdown: str) -> str:
    """A finding's page whose headings, other than messages, are left out of the search.

    >>> print(without_shared_headings("# Title\\n\\n## How to fix it\\n\\n### `a message`"))
    # Title
    <BLANKLINE>
    ## How to fix it { data-search-exclude }
    <BLANKLINE>
    ### `a message`
    """
    return re.sub(r"(?m)^(##+ [A-Z].*)$", r"\1 { data-search-exclude }", markdown)


def on_post_build(config: Any, **_: Any) -> None:
    """Mend a fault of the search, with which it fails for words such as `torch`.

    lunr writes a node's edges as `letter` + `number of the next node`, with no mark between two of
    them. If a word contains a digit, two different nodes may look the same (`a12` + `34`, and `a1`
    + `234`), and then lunr finds words that are on no page, and raises an error.
    """
    for worker in Path(config["site_dir"]).glob("assets/javascripts/workers/search.*.js"):
        text = worker.read_text(encoding="utf-8")
        # `e=e+s+o.id}return e}`, the end of TokenSet.toString
        edge = r"\b(\w)=\1\+(\w)\+(\w)\.id\}return \1\}"
        mended = re.sub(edge, r'\1=\1+\2+\3.id+","}return \1}', text)
        worker.write_text(mended, encoding="utf-8")
