"""What counts as a small fault: every one of a piece of code, and none where nothing is done."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from development.mutants.mutations import mutants_of, mutated


def changes(folder: Path, code: str) -> list[tuple[str, str]]:
    path = folder / "code.py"
    path.write_text(code, encoding="utf-8")
    return [(mutant.before, mutant.after) for mutant in mutants_of(path)]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("x = a < b", [("a < b", "a <= b"), ("a < b", "a >= b")]),
        ("x = a == b", [("a == b", "a != b")]),
        ("x = a is not None", [("a is not None", "a is None")]),
        ("x = a * b", [("a * b", "a / b")]),
        ("x += a", [("x += a", "x -= a")]),
        ("x = a and b", [("a and b", "a or b")]),
        ("x = not a", [("not a", "not not a")]),
        ("x = -a", [("-a", "+a")]),
        ("x = True", [("True", "False")]),
        ("x = 0.5", [("0.5", "1.5"), ("0.5", "-0.5")]),
        ("x = max(a)", [("max(a)", "min(a)")]),
        ("x = [a for a in b if c]", [("if c", "if not c")]),
        ("if a:\n    pass", [("if a:", "if not a:")]),
        ("def f():\n    return a", [("return a", "return None")]),
        # Nothing is done, or nothing else can be done.
        ("def f():\n    return None", []),
        ('"""1 + 1."""', []),
        ("assert a < b", []),
        ("x: Literal[1]", []),
        ("from a import b", []),
        ("T = TypeVar('T', bound=1)", []),
        ("if TYPE_CHECKING:\n    x = 1", []),
        ("@dataclass(frozen=True)\nclass A:\n    pass", []),
        ("x = f'{a}' + b", []),
        ("x = (a,) + b", []),
    ],
)
def test_what_can_be_changed(tmp_path: Path, code: str, found: list[tuple[str, str]]) -> None:
    assert changes(tmp_path, code) == found


def test_each_change_is_made_alone_and_stays_where_it_was(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("LIMIT = 3\n\n\ndef within(x):\n    if x < LIMIT:\n        return x + 1\n", encoding="utf-8")
    found = mutants_of(path)
    assert [(one.line, one.inside, one.of_module) for one in found] == [
        (1, "", True), (1, "", True),
        (5, "within", False), (5, "within", False), (6, "within", False), (6, "within", False), (6, "within", False),
        (6, "within", False),
    ]  # fmt: skip
    plain = ast.unparse(ast.parse(path.read_text(encoding="utf-8")))
    made = [ast.unparse(mutated(path, one.number)) for one in found]
    assert len({plain, *made}) == len(made) + 1
    assert made[2] == plain.replace("x < LIMIT", "x <= LIMIT")
    # Of an `if` only its head: what tests run its condition is another question than what runs its body.
    assert (found[2].lines, found[4].lines) == (range(5, 6), range(6, 7))
