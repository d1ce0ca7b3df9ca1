"""YAML in the text of an option or ini value: plain values, of the same kinds that a gate file may hold."""

from __future__ import annotations

from typing import Any, Final

import yaml

from pytest_llmroof.errors import ConfigError
from pytest_llmroof.gates.document import DEEPEST

#: More than any value that somebody writes on one line.
LONGEST: Final = 64 * 1024
_TIME: Final = "tag:yaml.org,2002:timestamp"


class _Loader(yaml.SafeLoader):
    """YAML's rules, but times stay text: where they name no zone, that is for us to say."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        letter: [(tag, rule) for tag, rule in rules if tag != _TIME]
        for letter, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """A node. ConfigError for aliases, which may multiply, for tags, and for what is nested too deep."""
        if self.check_event(yaml.AliasEvent):
            raise ConfigError("an alias (*) cannot stand in an option")
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]  # has no types
        if getattr(event, "tag", None) is not None:
            raise ConfigError("a tag (!) cannot stand in an option")
        self.depth += 1
        if self.depth > DEEPEST:
            raise ConfigError(f"nested more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def inline_value(text: str) -> object:
    """The value that an option's text writes. ConfigError, which never repeats the text, where it writes none."""
    if len(text) > LONGEST:
        raise ConfigError(f"longer than {LONGEST} characters")
    try:
        return yaml.load(text, _Loader)  # noqa: S506 - a safe loader
    except yaml.YAMLError as error:
        raise ConfigError(getattr(error, "problem", None) or "it cannot be read") from None
    except ValueError:  # 0x_, or a whole number of thousands of digits
        raise ConfigError("it holds a number that is none") from None
