"""A YAML document with its positions: composed, never constructed, so that no YAML type ever changes a meaning."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import yaml

from pytest_llmroof.errors import ConfigError, Position
from pytest_llmroof.gates import schema as shape
from pytest_llmroof.gates.scalars import Variables, scalar

#: What a gate file may hold: far above any real one, far below what would stop a machine.
MOST_BYTES: Final = 16 * 2**20
MOST_NODES: Final = 300_000
DEEPEST: Final = 24

_TAG: Final = "tag:yaml.org,2002:"
_TAGS: Final = frozenset(_TAG + name for name in ("str", "int", "float", "bool", "null", "timestamp", "map", "seq"))

_FastestLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_FastestLoader):  # type: ignore[misc]  # which of two bases depends on the machine
    """Composes without guessing what a scalar is: its place decides."""

    yaml_implicit_resolvers: ClassVar[dict[str, object]] = {}


_Entries = dict[str, tuple[yaml.Node, yaml.Node]]


class Document:
    """A YAML document: plain values, where each stands, and everything that is wrong with it as YAML.

    ``value`` holds only dict, list, str, int, float, bool and None; ``errors`` leave out what the schema will say.
    ``shown`` is the file's name in positions.
    """

    def __init__(self, text: str, shown: str, schema: shape.Schema) -> None:
        self.file = shown
        self.errors: list[ConfigError] = []
        self.variables = Variables()
        self._entries: dict[int, _Entries] = {}
        self._nodes = 0
        self._root = _compose(text, shown)
        self.value = self._value(self._root, schema, ()) if self._root is not None else None

    def position(self, path: shape.Path, on_key: bool = False) -> Position:
        """Where the value (or the key) of a path starts; of its nearest parent that is there."""
        node = self._root
        mark = node.start_mark if node is not None else None
        for depth, step in enumerate(path):
            found = self._child(node, step)
            if found is None:
                break
            key, node = found
            mark = key.start_mark if key is not None and on_key and depth == len(path) - 1 else node.start_mark
        return self._place(mark) if mark is not None else Position(self.file)

    def node(self, path: shape.Path) -> yaml.Node | None:
        """The node at a path, None where there is none."""
        node = self._root
        for step in path:
            found = self._child(node, step)
            if found is None:
                return None
            node = found[1]
        return node

    def text_positions(self, path: shape.Path, key: str) -> list[Position]:
        """Where the text of each element of a list starts; of its ``key``, where the element is a mapping."""
        node = self.node(path)
        if not isinstance(node, yaml.SequenceNode):
            return []
        return [self.text_of(self._entries.get(id(entry), {}).get(key, (None, entry))[1]) for entry in node.value]

    def text_of(self, node: yaml.Node) -> Position:
        """Where the text of a scalar starts: behind its quote; without a column where it is broken over lines."""
        start, end = node.start_mark, node.end_mark
        if not isinstance(node, yaml.ScalarNode) or start.line != end.line:
            return Position(self.file, start.line + 1)
        column = start.column + (2 if node.style in ("'", '"') else 1)
        return Position(self.file, start.line + 1, column)

    def _place(self, mark: yaml.Mark) -> Position:
        return Position(self.file, mark.line + 1, mark.column + 1)

    def _child(self, node: yaml.Node | None, step: str | int) -> tuple[yaml.Node | None, yaml.Node] | None:
        if isinstance(node, yaml.MappingNode):
            return self._entries.get(id(node), {}).get(str(step))
        if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            return None, node.value[step]
        return None

    def _wrong(self, node: yaml.Node, problem: str) -> None:
        self.errors.append(ConfigError(problem, self._place(node.start_mark)))

    def _value(self, node: yaml.Node, schema: Mapping[str, Any], path: shape.Path) -> object:
        self._count(node, len(path))
        if node.tag not in _TAGS:
            self._wrong(node, f"unknown tag {node.tag.replace(_TAG, '!!')!r}: gate files hold plain YAML only")
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, schema, path)
        if isinstance(node, yaml.SequenceNode):
            within = shape.child(schema, 0)
            return [self._value(entry, within, (*path, index)) for index, entry in enumerate(node.value)]
        assert isinstance(node, yaml.MappingNode)  # there is no fourth kind
        entries = self._entries[id(node)] = self._mapping(node, len(path))
        return {
            key: self._value(value, shape.child(schema, key), (*path, key)) for key, (_, value) in entries.items()
        }

    def _scalar(self, node: yaml.ScalarNode, schema: Mapping[str, Any], path: shape.Path) -> object:
        try:
            return scalar(node.value, schema, path, self.variables, plain=not node.style)
        except ConfigError as error:
            self._wrong(node, error.problem)
            return node.value

    def _mapping(self, node: yaml.MappingNode, depth: int) -> _Entries:
        """The entries of a mapping; what ``<<`` merges stands behind its own keys, which win."""
        own: _Entries = {}
        merged: list[yaml.Node] = []
        for key, value in node.value:
            if key.value == "<<" and not key.style:
                merged.extend(value.value if isinstance(value, yaml.SequenceNode) else [value])
            elif not isinstance(key, yaml.ScalarNode):
                self._wrong(key, "a key must be text")
            elif key.value in own:
                first = own[key.value][0].start_mark.line + 1
                self._wrong(key, f"the key {key.value!r} stands here twice: first in line {first}")
            else:
                own[key.value] = (key, value)
        for source in merged:
            self._count(source, depth + 1)
            if not isinstance(source, yaml.MappingNode):
                self._wrong(source, "'<<' merges mappings only")
                continue
            for name, entry in self._mapping(source, depth + 1).items():
                own.setdefault(name, entry)
        return own

    def _count(self, node: yaml.Node, depth: int) -> None:
        self._nodes += 1
        if depth > DEEPEST:
            raise ConfigError(f"nested more than {DEEPEST} levels deep", self._place(node.start_mark))
        if self._nodes > MOST_NODES:
            raise ConfigError(f"more than {MOST_NODES:,} values: are aliases nested?", self._place(node.start_mark))


def read(path: Path, shown: str) -> str:
    """The text of a gate file. ConfigError where it cannot be read, is too large, or is not UTF-8."""
    try:
        if path.is_fifo() or path.is_char_device():
            raise ConfigError("not a file", Position(shown))
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", Position(shown)) from None
    if len(content) > MOST_BYTES:
        raise ConfigError(f"larger than {MOST_BYTES // 2**20} MiB: this is no gate file", Position(shown))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line = before.count(b"\n") + 1
        raise ConfigError("not UTF-8 text", Position(shown, line, error.start - before.rfind(b"\n"))) from None


def _compose(text: str, shown: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        raise ConfigError(_problem(error, text), _error_position(error, shown)) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position] if isinstance(error.position, int) else ""
        place = Position(shown, before.count("\n") + 1, len(before) - before.rfind("\n"))
        raise ConfigError(f"not YAML: the character U+{int(error.character):04X} is not allowed", place) from None
    except RecursionError:
        raise ConfigError(f"nested more than {DEEPEST} levels deep", Position(shown)) from None


def _error_position(error: yaml.MarkedYAMLError, shown: str) -> Position:
    mark = error.problem_mark or error.context_mark
    return Position(shown, mark.line + 1, mark.column + 1) if mark is not None else Position(shown)


def _problem(error: yaml.MarkedYAMLError, text: str) -> str:
    mark = error.problem_mark
    if mark is not None and _character(text.splitlines(), mark.line, mark.column) == "\t":
        return "a tab stands here: YAML is indented with spaces"
    if isinstance(error, yaml.composer.ComposerError) and error.context == "expected a single document in the stream":
        return "a second document starts here: a gate file holds one"
    words: Iterable[str] = (part for part in (error.context, error.problem) if part)
    return f"not YAML: {', '.join(words)}"


def _character(lines: Sequence[str], line: int, column: int) -> str:
    return lines[line][column : column + 1] if line < len(lines) else ""
