"""Texts of others within Markdown: shown as they are, and nothing else. For GitHub and GitLab, whose dialects add much.

A backslash keeps punctuation from being markup. It does not keep a mention, a reference, an address or an emoji from
being made of what is then shown, but a code span does: words that could become one stand in a code span.
"""

from __future__ import annotations

import re
from typing import Final

from pytest_llmroof.report.headline import one_line, shorten
from pytest_llmroof.report.wire import visible

_MARKUP: Final = re.compile(r"[\\`*|\[\]]")
#: An underscore inside of a word is no emphasis.
_EDGE: Final = re.compile(r"(?<![^\W_])_|_(?![^\W_])")
#: What begins a tag, a comment or an entity; `<=` and `< 5` begin nothing.
_TAG: Final = re.compile(r"<(?=[A-Za-z/!?])")
_ENTITY: Final = re.compile(r"&(?=#?\w+;)")
#: Mentions, references (to issues, merge requests, labels, milestones, commits, ...), addresses, mathematics, emoji.
_TAKEN: Final = re.compile(
    r"@\w|://|www\.|mailto:|[#!~%&$^]\w|[~$]|\$`|:[\w+-]+:|\bGH-\d|\[\w+:|~\"|\{\{|\{%|\{[-+]|\[[-+]"
    r"|\b(?=[0-9a-f]*\d)[0-9a-f]{7,40}\b|\.\.\.[0-9a-f]{7}"
)

#: What closes a phrase behind a word, and is no part of an address that somebody copies.
_CLOSING: Final = ",;.?)"

#: Nobody reads more of a name or a reason in a list.
_LONGEST: Final = 400


def inert(text: str) -> str:
    """The text on one line, of readable length, and inert within Markdown that does not start with it."""
    return " ".join(map(_word, shorten(one_line(visible(text)), _LONGEST).split(" ")))


def _word(word: str) -> str:
    if _TAKEN.search(word):
        body = word.rstrip(_CLOSING)
        return code(body) + word[len(body) :] if _TAKEN.search(body) else code(word)
    word = _MARKUP.sub(r"\\\g<0>", word)
    word = _EDGE.sub(r"\\_", word)
    return _TAG.sub("&lt;", _ENTITY.sub("&amp;", word))


def code(text: str) -> str:
    """A code span of one line, whatever it holds."""
    text = one_line(visible(text))
    fence = _fence(text, 1)
    padding = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{padding}{text}{padding}{fence}"


def code_block(text: str) -> str:
    """A block that shows lines as they are."""
    text = visible(text)
    fence = _fence(text, 3)
    return f"{fence}text\n{text}\n{fence}"


def _fence(text: str, least: int) -> str:
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    return "`" * max(least, longest + 1)
