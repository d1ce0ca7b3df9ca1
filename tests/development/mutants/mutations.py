"""What can be changed in a module so that a test should notice: one small change each, on its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: What a comparison becomes: first its edge, then its opposite.
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]]] = {
    ast.Lt: (ast.LtE, ast.GtE), ast.LtE: (ast.Lt, ast.Gt), ast.Gt: (ast.GtE, ast.LtE), ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,), ast.NotEq: (ast.Eq,), ast.Is: (ast.IsNot,), ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,), ast.NotIn: (ast.In,),
}  # fmt: skip
_ARITHMETIC: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult,
}  # fmt: skip
_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
#: Conditions without an operator of their own.
_PLAIN: Final = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)


@dataclass(frozen=True)
class Mutant:
    """One change of a module. ``lines`` are those of the statement that holds it, without the blocks under it."""

    number: int
    line: int
    lines: range
    inside: str
    kind: str
    before: str
    after: str

    @property
    def of_module(self) -> bool:
        """Whether it is in what runs at the module's import, and not in a function."""
        return not self.inside


@dataclass(frozen=True)
class _Change:
    kind: str
    node: ast.AST
    fields: Mapping[str, object]

    def apply(self) -> None:
        """Make it in the tree."""
        for name, value in self.fields.items():
            setattr(self.node, name, value)

    @property
    def before(self) -> str:
        """What the changed piece says without it."""
        return _said(self.node)

    def after(self) -> str:
        """What it says with it; the tree stays as it is."""
        kept = {name: getattr(self.node, name) for name in self.fields}
        self.apply()
        said = _said(self.node)
        for name, value in kept.items():
            setattr(self.node, name, value)
        return said


class _Finder(ast.NodeVisitor):
    """Every change that can be made, in the tree's order, with where it is."""

    def __init__(self) -> None:
        self.found: list[tuple[_Change, ast.stmt, str]] = []
        self._functions: list[str] = []
        self._statement: ast.stmt | None = None

    def visit(self, node: ast.AST) -> None:
        outer = self._statement
        if isinstance(node, ast.stmt):
            self._statement = node
        if not _words(node):
            if self._statement is not None:
                inside = ".".join(self._functions)
                self.found += [(change, self._statement, inside) for change in _changes(node)]
            self._within(node)
        self._statement = outer

    def _within(self, node: ast.AST) -> None:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for expression in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                self.visit(expression)
            self._functions.append(node.name)
            for statement in node.body:
                self.visit(statement)
            self._functions.pop()
        elif isinstance(node, ast.ClassDef):
            for statement in node.body:
                self.visit(statement)
        elif isinstance(node, ast.Lambda):
            self._functions.append("<lambda>")
            self.visit(node.body)
            self._functions.pop()
        elif isinstance(node, ast.AnnAssign):
            if node.value is not None:
                self.visit(node.value)
        else:
            self.generic_visit(node)


def _words(node: ast.AST) -> bool:
    """What is not behaviour: assertions, docstrings, imports, what only a type checker reads (and decorators: that a
    class is frozen is a promise to those who read it).
    """
    if isinstance(node, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return True
    if isinstance(node, ast.Assign):
        return isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "TypeVar"
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def _changes(node: ast.AST) -> Iterator[_Change]:
    def change(kind: str, **fields: object) -> _Change:
        return _Change(kind, node, fields)

    if isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            for other in _COMPARISONS[type(operator)]:
                yield change("comparison", ops=[*node.ops[:at], other(), *node.ops[at + 1 :]])
    elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in _ARITHMETIC:
        if not _text(node):
            yield change("arithmetic", op=_ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.BoolOp):
        yield change("boolean", op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield change("constant", value=not node.value)
        elif isinstance(node.value, int | float):
            yield change("constant", value=node.value + 1)
            yield change("constant", value=node.value - 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and not isinstance(node.operand, ast.Constant):
        yield change("arithmetic", op=ast.UAdd())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        # `not not x` is the truth of x.
        yield change("not", operand=ast.UnaryOp(op=ast.Not(), operand=node.operand))
    elif isinstance(node, ast.Return):
        if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield change("return", value=ast.Constant(None))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        yield change("call", func=ast.Name(_CALLS[node.func.id], ast.Load()))
    if isinstance(node, ast.If | ast.IfExp | ast.While) and isinstance(node.test, _PLAIN):
        yield change("condition", test=ast.UnaryOp(op=ast.Not(), operand=node.test))
    if isinstance(node, ast.comprehension):
        for at, test in enumerate(node.ifs):
            if isinstance(test, _PLAIN):
                negated = ast.UnaryOp(op=ast.Not(), operand=test)
                yield change("condition", ifs=[*node.ifs[:at], negated, *node.ifs[at + 1 :]])


def _text(node: ast.BinOp | ast.AugAssign) -> bool:
    """Whether texts or tuples are joined, which no other operator can do."""
    sides = (node.left, node.right) if isinstance(node, ast.BinOp) else (node.value,)
    return any(isinstance(side, ast.JoinedStr | ast.Tuple | ast.List) or _string(side) for side in sides)


def _string(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file. Their numbers are the same whenever the file is."""
    mutants = []
    for number, (change, statement, inside) in enumerate(_found(ast.parse(path.read_text(encoding="utf-8")))):
        line = getattr(change.node, "lineno", statement.lineno)
        line = line if statement.lineno <= line <= (statement.end_lineno or line) else statement.lineno
        mutants.append(Mutant(number, line, _lines(statement), inside, change.kind, change.before, change.after()))
    return mutants


def mutated(path: Path, number: int) -> ast.Module:
    """The file's tree with one change made."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    change = _found(tree)[number][0]
    change.apply()
    ast.fix_missing_locations(tree)
    return tree


def _found(tree: ast.Module) -> list[tuple[_Change, ast.stmt, str]]:
    finder = _Finder()
    finder.visit(tree)
    return finder.found


def _said(node: ast.AST) -> str:
    """The head of a statement, or an expression, as code; of an `if` in a comprehension all of it."""
    if isinstance(node, ast.comprehension):
        return " ".join(f"if {ast.unparse(test)}" for test in node.ifs)
    return ast.unparse(node).split("\n", 1)[0]


def _lines(statement: ast.stmt) -> range:
    """A statement's own lines: of one that holds others, those before them."""
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else (statement.end_lineno or statement.lineno)
    return range(statement.lineno, max(end, statement.lineno) + 1)
