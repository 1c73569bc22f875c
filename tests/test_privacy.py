"""Nothing but ``refine.access.reading`` brings what an agent keeps before a human.

The API answers agents with what is their own, in five named places; its other modules, and with
them all that a platform token can ask, read nothing that is sealed.

What unseals is found in the models themselves: every attribute that opens a seal, and every
property and method that gives on what one of these says.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy.orm import configure_mappers

import refine
from refine.api.routing import OPERATIONS
from refine.api.schemas import Resource
from refine.extensions import Base
from refine.models import Endpoint
from refine.models.keys import SealedText

SOURCE = Path(refine.__file__).parent
TEMPLATES = SOURCE.parent / "templates"

# What a method that reads a sealed text may return without giving it on.
_GIVES_NOTHING_ON = {"bool", "None", "int", "int | None"}
# What one returns that gives it on.
_TEXTS = ("str", "str | None", "Image", "dict[str, Any]", "tuple[Any, bool]")
# What the agent itself is given, by the bearer of its own token: in these modules, and no more.
_THE_AGENTS_OWN = {
    "api/memories.py": {"content"},
    "api/moving.py": {"content"},
    "api/oversight.py": {"sealed", "purpose"},
    "api/sessions.py": {"summary"},
}
_OPENING = {"open", "content_of", "sealed_under"}
# Reads attributes by the names of a class's fields: see the test of those fields.
_READS_BY_FIELD = "api/schemas.py"
# Modules that read what a list names, and the name of the list.
_READ_BY_LISTS = {
    "cli/output.py": "Field",
    "web/audit.py": "_ATTRIBUTES",
    "web/forms.py": "_STORED",
    "web/status.py": "_SUMS",
    "web/usage.py": "_FIGURES",
}
_EXPRESSIONS = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)


def sealed_names() -> set[str]:
    """The names of all attributes that open a seal, and of the columns in which it is kept."""
    configure_mappers()
    # what signs webhooks is a secret, and no content
    mappers = (each for each in Base.registry.mappers if each.class_ is not Endpoint)
    classes = {cls for mapper in mappers for cls in mapper.class_.__mro__}
    texts = {
        name
        for cls in classes
        for name, value in vars(cls).items()
        if isinstance(value, SealedText)
    }
    return texts | {f"sealed_{name}" for name in texts}


def functions() -> Iterator[ast.FunctionDef]:
    for path in (SOURCE / "models").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield from (each for each in node.body if isinstance(each, ast.FunctionDef))


def opens_a_seal(function: ast.FunctionDef, names: set[str]) -> bool:
    """Whether it reads one of these names or opens a seal, and returns text."""
    returned = ast.unparse(function.returns) if function.returns is not None else "None"
    if returned.strip("'\"") in _GIVES_NOTHING_ON:
        return False
    return any(
        (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr in names)
        or (isinstance(node, ast.Name) and node.id in _OPENING)
        for node in ast.walk(function)
    )


@pytest.fixture(scope="module")
def unsealing() -> set[str]:
    """Every attribute of a model with content of an agent."""
    properties = [
        each
        for each in functions()
        if any(ast.unparse(decorator) == "property" for decorator in each.decorator_list)
    ]
    found = {each.name for each in properties if opens_a_seal(each, _OPENING)} | sealed_names()
    while more := {each.name for each in properties if opens_a_seal(each, found)} - found:
        found |= more
    return found


@pytest.fixture(scope="module")
def telling(unsealing: set[str]) -> set[str]:
    """Every public method of a model that returns content, or makes an image of it."""
    found: set[str] = set()
    for each in functions():
        returned = ast.unparse(each.returns) if each.returns is not None else ""
        reads = opens_a_seal(each, unsealing | _OPENING)
        if not each.name.startswith("_") and returned in _TEXTS and reads:
            found.add(each.name)
    return found - unsealing


def modules() -> list[Path]:
    return [
        path for area in ("api", "web", "cli", "jobs") for path in (SOURCE / area).rglob("*.py")
    ]


def read_in(tree: ast.AST, names: set[str]) -> list[tuple[int, str]]:
    """Where one of these is read; what a class of the model stands before is a column, unread."""
    return [
        (node.lineno, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in names
        and not (isinstance(node.value, ast.Name) and node.value.id[:1].isupper())
    ]


def test_what_signs_webhooks_is_read_where_it_signs_alone():
    """It is no content; the API shows it to nobody but who adds the webhook, once."""
    reading = {
        str(path.relative_to(SOURCE))
        for path in modules()
        if read_in(ast.parse(path.read_text()), {"secret"})
    }
    shown = [each for each in TEMPLATES.rglob("*.html") if ".secret" in each.read_text()]

    assert reading == {"jobs/delivering.py", "jobs/webhook.py"}
    assert shown == []


def test_the_names_that_unseal_are_found(unsealing, telling):
    assert unsealing >= {
        *("content", "extra", "sealed", "summary", "consent_reply", "purpose", "reply"),
        *("system_prompt", "refinement_prompt", "effective_refinement_prompt"),
    }
    assert telling >= {"ledger_entry"}


def test_no_page_command_or_job_reads_sealed_text(unsealing, telling):
    found = {
        f"{path.relative_to(SOURCE)}:{line} .{name}"
        for path in modules()
        for line, name in read_in(ast.parse(path.read_text()), unsealing | telling)
        if name not in _THE_AGENTS_OWN.get(str(path.relative_to(SOURCE)), ())
    }

    assert found == set()


def test_modules_that_read_an_agents_own_content_serve_agent_tokens_alone():
    """Where these modules read it, every operation wants an agent token."""
    by_module: dict[str, set[str | None]] = {}
    for each in OPERATIONS:
        path = Path(inspect.getfile(each.view)).relative_to(SOURCE)
        by_module.setdefault(str(path), set()).add(each.bearer)

    assert [by_module[path] for path in _THE_AGENTS_OWN] == [{"agent"}] * len(_THE_AGENTS_OWN)


def test_no_answer_of_another_module_has_a_field_of_that_name(unsealing, telling):
    found = {
        f"{Path(inspect.getfile(resource)).relative_to(SOURCE)} .{name}"
        for resource in subclasses(Resource)
        for name in resource.model_fields.keys() & (unsealing | telling)
    }

    assert found == {f"{path} .{name}" for path, names in _THE_AGENTS_OWN.items() for name in names}


def subclasses(cls: type[Resource]) -> Iterator[type[Resource]]:
    for each in cls.__subclasses__():
        yield from (each, *subclasses(each))


def test_no_page_command_or_job_reads_it_by_its_name(unsealing, telling):
    """``getattr(agent, "system_prompt")`` and its like; a name that is made must say its end."""
    found = set()
    for path in modules():
        name_of_file = str(path.relative_to(SOURCE))
        if name_of_file == _READS_BY_FIELD:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = name_asked_for(node)
            is_listed = not named and name_of_file in _READ_BY_LISTS
            if named is not None and not is_listed and (not named or named in unsealing | telling):
                found.add(f"{name_of_file}:{node.lineno}")  # type: ignore[attr-defined]

    assert found == set()


def test_no_list_of_names_to_read_has_one_that_unseals(unsealing, telling):
    listed = {
        name.rpartition(".")[2]
        for path in modules()
        for node in ast.walk(ast.parse(path.read_text()))
        for name in names_in_list(node)
    }

    assert len(listed) > 50
    assert listed & (unsealing | telling) == set()


def names_in_list(node: ast.AST) -> Iterator[str]:
    """The texts of ``Field("slug", "account", "account.slug")``, or of a list of this name."""
    match node:
        case ast.Call(func=ast.Name(id="Field"), args=given):
            yield from (str(each.value) for each in given if isinstance(each, ast.Constant))
        case (
            ast.Assign(targets=[ast.Name(id=name)], value=listed)
            | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as listed)
        ) if name in _READ_BY_LISTS.values():
            constants = (each for each in ast.walk(listed) if isinstance(each, ast.Constant))
            yield from (str(each.value) for each in constants)


def name_asked_for(node: ast.AST) -> str | None:
    """The last part of the attribute that a call gets by its name; empty where nobody can tell."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return None
    if node.func.id in ("vars", "attrgetter"):
        return ""
    if node.func.id != "getattr" or ast.unparse(node.args[0]) == "self":
        return None
    asked = node.args[1]
    if isinstance(asked, ast.JoinedStr):
        asked = asked.values[-1]
    return str(asked.value) if isinstance(asked, ast.Constant) else ""


def test_no_template_reads_sealed_text(unsealing, telling):
    attribute = re.compile(rf"[.]({'|'.join(sorted(unsealing | telling))})\b|\|\s*attr\b")

    found = {
        f"{path.relative_to(TEMPLATES)}: {said.group()}"
        for path in TEMPLATES.rglob("*.html")
        for expression in _EXPRESSIONS.findall(path.read_text())
        for said in attribute.finditer(expression)
    }

    assert found == set()


def test_no_template_leaves_a_text_unescaped():
    found = [
        path.name
        for path in TEMPLATES.rglob("*.html")
        if re.search(r"\|\s*safe\b|autoescape", path.read_text())
    ]

    assert found == []
