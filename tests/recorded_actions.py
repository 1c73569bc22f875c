"""Finds every action that the application records, in its source."""

import ast
from pathlib import Path

import refine

SOURCE = Path(refine.__file__).parent

# The functions that record an action: which of their arguments it is, and what they put before it.
_RECORDERS = {
    "record": (0, ""),
    "to_record": (0, ""),
    "change_memories": (0, ""),
    "add_memories": (0, ""),
    "MemoryEdit": (0, ""),
}
_RECORDERS_OF_MODULES = {
    "access/reading.py": {"record": (0, "memory_access_")},
    "models/clients/api_token.py": {"_record": (0, "")},
    "models/ledger/memory.py": {"_change": (0, "")},
    "models/runs/access/grant.py": {
        "record": (0, "memory_access_"),
        "_end_request": (0, "memory_access_"),
    },
    "models/runs/session/editing.py": {"Edit": (0, "memory_refinement_")},
}
# What is called alike, but only returns a record, or is given the action by ``to_record``: module
# and object.
_NOT_RECORDING = {
    ("web/audit/pages.py", "granted"),
    ("models/people/recording.py", "AuditLog"),
}


def recorded_actions() -> set[str]:
    """Return the actions of all calls that record one; AssertionError if one cannot be told."""
    modules = [_Module(path) for path in SOURCE.rglob("*.py")]
    return {action for module in modules for action in module.actions()}


class _Module:
    def __init__(self, path: Path) -> None:
        self._name = path.relative_to(SOURCE).as_posix()
        self._tree = ast.parse(path.read_text())
        self._recorders = _RECORDERS | _RECORDERS_OF_MODULES.get(self._name, {})

    def actions(self) -> set[str]:
        return {
            action
            for scope in (self._tree, *_functions(self._tree))
            for call in _own_calls(scope)
            for action in self._recorded_by(scope, call)
        }

    def _recorded_by(self, scope: ast.AST, call: ast.Call) -> set[str]:
        receiver, name = _called(call)
        if name not in self._recorders or (self._name, receiver) in _NOT_RECORDING:
            return set()
        position, prefix = self._recorders[name]
        given = [each.value for each in call.keywords if each.arg == "action"]
        action = given[0] if given else call.args[position]
        if self._passes_on(scope, action):
            return set()
        return {prefix + value for value in self._values(scope, action)}

    def _passes_on(self, scope: ast.AST, action: ast.expr) -> bool:
        """Whether this is a recorder's own action, which its callers give."""
        if not isinstance(scope, ast.FunctionDef) or scope.name not in self._recorders:
            return False
        parameters = {each.arg for each in (*scope.args.args, *scope.args.kwonlyargs)}
        names = {each.id for each in ast.walk(action) if isinstance(each, ast.Name)}
        return bool(names) and names <= parameters

    def _values(self, scope: ast.AST, action: ast.expr) -> set[str]:
        match action:
            case ast.Constant(value=str(value)):
                return {value}
            case ast.IfExp(body=body, orelse=orelse):
                return self._values(scope, body) | self._values(scope, orelse)
            case ast.Attribute(attr="action"):
                return set()  # of an edit, which was given it where it was made
            case ast.Subscript(value=ast.Name(id=name)):
                table = self._assigned(scope, name)
                if isinstance(table, ast.Dict):
                    return set.union(*(self._values(scope, each) for each in table.values))
            case ast.Name(id=name):
                if (value := self._assigned(scope, name)) is not None:
                    return self._values(scope, value)
        raise AssertionError(f"{self._name}:{action.lineno} records an action that cannot be told")

    def _assigned(self, scope: ast.AST, name: str) -> ast.expr | None:
        for each in (*ast.walk(scope), *self._tree.body):
            match each:
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                    return value
                case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if (
                    target == name
                ):
                    return value
        return None


def _functions(tree: ast.AST) -> list[ast.FunctionDef]:
    return [each for each in ast.walk(tree) if isinstance(each, ast.FunctionDef)]


def _own_calls(scope: ast.AST) -> list[ast.Call]:
    """The calls of a function or module, without those of the functions in it."""
    found, following = [], list(ast.iter_child_nodes(scope))
    while following:
        node = following.pop()
        if isinstance(node, ast.FunctionDef):
            continue
        if isinstance(node, ast.Call):
            found.append(node)
        following.extend(ast.iter_child_nodes(node))
    return found


def _called(call: ast.Call) -> tuple[str, str]:
    """The name of the object, if it has one, and that of the function."""
    match call.func:
        case ast.Attribute(value=ast.Name(id=receiver), attr=name):
            return receiver, name
        case ast.Attribute(attr=name):
            return "", name
        case ast.Name(id=name):
            return "", name
    return "", ""
