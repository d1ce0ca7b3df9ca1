"""From a seed to an input, by a seeded generator of random numbers: the same seed and number give the same input."""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Sequence

#: What readers stumble over: numbers at the edges of types, words for what is no number, structure, text of all kinds.
TOKENS: Sequence[bytes] = (
    b"0", b"-0", b"-1", b"1e308", b"1e309", b"-1e309", b"5e-324", b"NaN", b"nan", b"+Inf", b"-Infinity", b"Infinity",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"18446744073709551616", b"4294967295",
    b"9" * 400, b"9" * 5000, b"0.1e-400", b"1_000", b"0x10", b"010", b"1e3", b"60:30", b"\xd9\xa1\xd9\xa2", b"\xc2\xb2",
    b"null", b"true", b"no", b"~", b'""', b"[]", b"{}", b"[[[[", b"]]]]", b'{"a":', b"}", b"]", b",", b":", b"::", b"=",
    b'"', b"'", b"\\", b"\\u0000", b"\\ud800", b"\\udfff\\ud800", b"\n", b"\r", b"\r\n", b"\t", b"\0", b" ", b"#", b"%",
    b"\x1b[31m", b"\xe2\x80\xae", b"\xef\xbb\xbf", b"\xff\xfe", b"\xf0\x9f\x92\xa9", b"\xed\xa0\x80", b"\x85",
    b"\xe2\x80\xa8", b"<script>", b"]]>", b"{{7*7}}", b"${HOME}", b"${X", b"$${Y}", b"&a", b"*a", b"<<: ",
    b"!!python/x",
    b"---\n", b"...\n", b"# scraped_at 1e999\n", b"# scraped_at 0\n", b"# EOF\n", b'{le="+Inf"}', b'{le="x"} 1\n',
    b"2001-13-40", b"now-1e400s", b"0x_", b"../../etc/passwd", b"/dev/zero", b"file:///etc/passwd", b"-" * 3000,
    b"[" * 3000, b"(" * 60, b"x" * 9000,
)  # fmt: skip
_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_WORD = re.compile(rb"[A-Za-z_][\w.]*")
_STRINGY = re.compile(rb'"[^"\n]{0,200}"')
_NUMBERS = (b"1", b"2", b"1000000", b"0.5", *(one for one in TOKENS if re.fullmatch(rb"[-+]?[\dNnIi].*", one)))
_GZIP = b"\x1f\x8b"

Operator = Callable[[bytes, random.Random], bytes]


def mutated(content: bytes, chance: random.Random, others: Sequence[bytes] = ()) -> bytes:
    """An input: one to a handful of changes, sometimes spliced with ``others``; packed data are changed inside too."""
    if content.startswith(_GZIP) and chance.random() < 0.7:
        inner = _several(gzip.decompress(content), chance, others)
        return gzip.compress(inner, compresslevel=1, mtime=0)
    return _several(content, chance, others)


def _several(content: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    for _ in range(1 if chance.random() < 0.5 else chance.randint(2, 6)):
        if others and chance.random() < 0.03:
            content = _spliced(content, chance.choice(others), chance)
        content = chance.choice(OPERATORS)(content, chance)
    return content


def _spliced(content: bytes, other: bytes, chance: random.Random) -> bytes:
    return content[: chance.randint(0, len(content))] + other[chance.randint(0, len(other)) :]


def _span(content: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, len(content))
    return start, min(len(content), start + int(2 ** chance.uniform(0, 9)))


def _flip(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.randint(1, 4) if changed else 0):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _set(content: bytes, chance: random.Random) -> bytes:
    """Bytes at the edges: of lengths, counts and types in binary files."""
    changed = bytearray(content)
    start = chance.randrange(len(changed)) if changed else 0
    for place in range(start, min(len(changed), start + chance.choice((1, 2, 4, 8)))):
        changed[place] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    return bytes(changed)


def _early(content: bytes, chance: random.Random) -> bytes:
    """The same in the head, where binary files say what they are."""
    head, rest = content[:200], content[200:]
    return _set(head, chance) + rest


def _cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randint(0, len(content))]


def _delete(content: bytes, chance: random.Random) -> bytes:
    start, end = _span(content, chance)
    return content[:start] + content[end:]


def _double(content: bytes, chance: random.Random) -> bytes:
    start, end = _span(content, chance)
    return content[:end] + content[start:end] * chance.choice((1, 1, 2, 20)) + content[end:]


def _insert(content: bytes, chance: random.Random) -> bytes:
    place = chance.randint(0, len(content))
    return content[:place] + chance.choice(TOKENS) + content[place:]


def _noise(content: bytes, chance: random.Random) -> bytes:
    place = chance.randint(0, len(content))
    return content[:place] + chance.randbytes(chance.randint(1, 12)) + content[place:]


def _of(pattern: re.Pattern[bytes], replacement: Callable[[bytes, bytes, random.Random], bytes]) -> Operator:
    """An operator on something that stands in a text: found from a random place on, so that all is reached."""

    def change(content: bytes, chance: random.Random) -> bytes:
        start = chance.randint(0, len(content))
        found = pattern.search(content, start) or pattern.search(content)
        if found is None:
            return _insert(content, chance)
        new = replacement(found.group(), content, chance)
        return content[: found.start()] + new + content[found.end() :]

    return change


def _other_number(old: bytes, content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.6:
        return chance.choice(_NUMBERS)
    sign = b"" if old.startswith(b"-") else b"-"
    return chance.choice((sign + old, old + b"0", old[:-1] or b"0", b"0." + old.lstrip(b"-").replace(b".", b"")))


def _other_word(old: bytes, content: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return chance.choice(TOKENS)
    words = _WORD.findall(content, max(0, chance.randint(-200, len(content) - 1)))
    return chance.choice(words[:60]) if words else b"x"


def _other_string(old: bytes, content: bytes, chance: random.Random) -> bytes:
    return chance.choice((b'""', b"null", b"1", b"[]", b"{}", old * 2, b'"' + chance.choice(TOKENS) + b'"'))


def _line(content: bytes, chance: random.Random) -> bytes:
    """A line taken away, doubled, moved, or with another's end."""
    lines = content.splitlines(keepends=True)
    if len(lines) < 2:
        return _delete(content, chance)
    at, other = chance.randrange(len(lines)), chance.randrange(len(lines))
    kind = chance.randrange(4)
    if kind == 0:
        del lines[at : at + chance.choice((1, 1, 2, 10))]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    else:
        lines[at] = lines[at][: len(lines[at]) // 2] + lines[other][len(lines[other]) // 2 :]
    return b"".join(lines)


OPERATORS: Sequence[Operator] = (
    _flip, _set, _early, _cut, _delete, _double, _insert, _noise, _line, _line,
    _of(_NUMBER, _other_number), _of(_NUMBER, _other_number), _of(_NUMBER, _other_number),
    _of(_WORD, _other_word), _of(_STRINGY, _other_string),
)  # fmt: skip
