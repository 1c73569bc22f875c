"""The faults: one changed operator, constant, condition, argument or statement each."""

import ast
import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import CodeType

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
}
# Calls in a query whose removal leaves a valid query, and those whose conditions can be dropped.
_QUERY_STEPS = ("where", "with_for_update", "order_by", "limit", "correlate")
_CONDITIONS = ("where", "and_", "or_", "filter")


@dataclass(frozen=True)
class Mutant:
    """One fault in one function; what ``compiled`` returns replaces the function's code."""

    path: str
    line: int
    last_line: int
    function: str
    description: str
    compiled: Callable[[], CodeType | None]

    @property
    def name(self) -> str:
        """Where the fault is, and what it is."""
        return f"{self.path}:{self.line} {self.function}: {self.description}"


def mutants_of(path: Path, shown: str) -> Iterator[Mutant]:
    """Yield every mutant of a module; faults outside functions are not made."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for function, name in _functions(tree):
        for statement in ast.walk(function):
            if not isinstance(statement, ast.stmt) or statement is function:
                continue
            lines = statement.lineno, _last_line(statement)
            for node, replacement, description in _faults(statement):
                compiled = partial(_compiled, tree, function, node, replacement, str(path))
                yield Mutant(shown, *lines, name, description, compiled)


def _functions(tree: ast.Module) -> Iterator[tuple[ast.FunctionDef, str]]:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield node, node.name
        elif isinstance(node, ast.ClassDef):
            for each in node.body:
                if isinstance(each, ast.FunctionDef):
                    yield each, f"{node.name}.{each.name}"


def _last_line(statement: ast.stmt) -> int:
    """The last line of the statement's own expression, without the block that it heads."""
    body = getattr(statement, "body", None)
    if isinstance(body, list) and body:
        return max(statement.lineno, body[0].lineno - 1)
    return statement.end_lineno or statement.lineno


def _faults(statement: ast.stmt) -> Iterator[tuple[ast.AST, ast.AST | None, str]]:
    """Yield (node, replacement or None to remove the statement, description)."""
    if _changes_state(statement):
        yield statement, None, f"without {_short(statement)}"
    if isinstance(statement, ast.If | ast.While) and isinstance(
        statement.test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr
    ):
        negated = ast.UnaryOp(ast.Not(), statement.test)
        yield statement.test, negated, f"not ({_short(statement.test)})"
    for node in _expressions(statement):
        yield from _faults_of(node)


def _changes_state(statement: ast.stmt) -> bool:
    """Tell whether the statement can be left out without a name going undefined."""
    match statement:
        case ast.Expr(ast.Call()) | ast.AugAssign() | ast.Raise():
            return True
        case ast.Assign(targets):
            return all(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
    return False


def _expressions(statement: ast.stmt) -> Iterator[ast.expr]:
    """The statement's own expressions; those of nested statements belong to these."""
    pending: list[ast.AST] = [statement]
    while pending:
        parent = pending.pop()
        for child in ast.iter_child_nodes(parent):
            if isinstance(child, ast.stmt) or _is_without_effect(child, parent):
                continue
            if isinstance(child, ast.expr):
                yield child
            pending.append(child)


def _is_without_effect(node: ast.AST, parent: ast.AST) -> bool:
    """Types are for the checker, joined texts are the words of messages, zip's strict a guard."""
    if isinstance(parent, ast.Call) and ast.unparse(parent.func) == "cast":
        return node is parent.args[0]
    is_strict = isinstance(node, ast.keyword) and node.arg == "strict"
    is_type = node in (getattr(parent, "annotation", None), getattr(parent, "returns", None))
    return isinstance(node, ast.JoinedStr) or is_strict or is_type


def _faults_of(node: ast.expr) -> Iterator[tuple[ast.AST, ast.AST, str]]:
    if isinstance(node, ast.Compare):
        for position, operator in enumerate(node.ops):
            changed = copy.deepcopy(node)
            changed.ops[position] = _COMPARISONS[type(operator)]()
            yield node, changed, f"{_short(node)} -> {_short(changed)}"
    elif isinstance(node, ast.BoolOp):
        for position in range(len(node.values)):
            rest = [value for number, value in enumerate(node.values) if number != position]
            changed_values = rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest)
            yield node, changed_values, f"{_short(node)} -> {_short(changed_values)}"
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.Invert):
        yield node, node.operand, f"{_short(node)} -> {_short(node.operand)}"
    elif isinstance(node, ast.IfExp):
        yield node, node.body, f"always {_short(node.body)}"
        yield node, node.orelse, f"always {_short(node.orelse)}"
    elif isinstance(node, ast.BinOp):
        yield from _faults_of_operation(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        other = not node.value if isinstance(node.value, bool) else node.value + 1
        yield node, ast.Constant(other), f"{node.value} -> {other}"
    elif isinstance(node, ast.Call):
        yield from _faults_of_call(node)


def _faults_of_operation(node: ast.BinOp) -> Iterator[tuple[ast.AST, ast.AST, str]]:
    if isinstance(node.op, ast.BitAnd | ast.BitOr):  # conditions of a query
        for side in (node.left, node.right):
            yield node, side, f"{_short(node)} -> {_short(side)}"
    elif type(node.op) in _ARITHMETIC and not _is_text(node):
        changed = ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right)
        yield node, changed, f"{_short(node)} -> {_short(changed)}"


def _is_text(node: ast.BinOp) -> bool:
    return any(
        isinstance(each, ast.JoinedStr)
        or (isinstance(each, ast.Constant) and isinstance(each.value, str))
        for each in ast.walk(node)
    )


def _faults_of_call(node: ast.Call) -> Iterator[tuple[ast.AST, ast.AST, str]]:
    attribute = node.func.attr if isinstance(node.func, ast.Attribute) else None
    name = attribute or (node.func.id if isinstance(node.func, ast.Name) else None)
    if attribute in _QUERY_STEPS and isinstance(node.func, ast.Attribute):
        yield node, node.func.value, f"without .{attribute} in {_short(node)}"
    if name in _CONDITIONS and len(node.args) > 1:
        for position in range(len(node.args)):
            changed = copy.deepcopy(node)
            del changed.args[position]
            yield node, changed, f"{name} without {_short(node.args[position])}"


def _compiled(
    tree: ast.Module,
    function: ast.FunctionDef,
    node: ast.AST,
    replacement: ast.AST | None,
    path: str,
) -> CodeType | None:
    """Return the code of the function with one node replaced."""
    memo: dict[int, object] = {}
    changed_tree = copy.deepcopy(tree, memo)
    changed_node, changed_function = memo[id(node)], memo[id(function)]
    with_fault = _Replace(changed_node, copy.deepcopy(replacement)).visit(changed_tree)
    ast.fix_missing_locations(with_fault)
    try:
        module = compile(with_fault, path, "exec")
    except (SyntaxError, ValueError):
        return None
    assert isinstance(changed_function, ast.FunctionDef)
    first_line = min(
        [changed_function.lineno, *(each.lineno for each in changed_function.decorator_list)]
    )
    return _find_code(module, changed_function.name, first_line)


class _Replace(ast.NodeTransformer):
    def __init__(self, node: object, replacement: ast.AST | None) -> None:
        self._node = node
        self._replacement = replacement

    def visit(self, node: ast.AST) -> ast.AST:
        if node is not self._node:
            return super().generic_visit(node)
        if self._replacement is None:
            return ast.copy_location(ast.Pass(), node)
        return ast.copy_location(self._replacement, node)


def _find_code(code: CodeType, name: str, first_line: int) -> CodeType | None:
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            continue
        if constant.co_name == name and constant.co_firstlineno == first_line:
            return constant
        if (found := _find_code(constant, name, first_line)) is not None:
            return found
    return None


def _short(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 70 else f"{text[:67]}..."
