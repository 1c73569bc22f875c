"""Anthropic's memory tool with Refine behind it: a file is a memory. Needs ``anthropic``.

    tool = RefineMemoryTool(Refine())
    client.beta.messages.tool_runner(tools=[tool], …)

``AsyncAnthropic`` takes an ``AsyncRefineMemoryTool``.
"""

import asyncio

from anthropic.lib.tools import (
    BetaAbstractMemoryTool,
    BetaAsyncBuiltinFunctionTool,
    BetaFunctionToolResultType,
    ToolError,
)
from anthropic.types.beta import (
    BetaMemoryTool20250818Command,
    BetaMemoryTool20250818CreateCommand,
    BetaMemoryTool20250818DeleteCommand,
    BetaMemoryTool20250818InsertCommand,
    BetaMemoryTool20250818Param,
    BetaMemoryTool20250818RenameCommand,
    BetaMemoryTool20250818StrReplaceCommand,
    BetaMemoryTool20250818ViewCommand,
)

from refine_client.client import Refine, RefineError
from refine_client.named import Named, NamedMemories

_ROOT = "/memories"


class RefineMemoryTool(BetaAbstractMemoryTool):
    """The six commands; what a rule of Refine refuses comes back as the tool's error."""

    def __init__(self, refine: Refine) -> None:
        super().__init__()
        self._memories = NamedMemories(refine)

    def execute(self, command: BetaMemoryTool20250818Command) -> str:
        """Carry out a command; ToolError says in words why it was not done."""
        try:
            return str(super().execute(command))
        except RefineError as error:
            raise ToolError(str(error)) from None

    def view(self, command: BetaMemoryTool20250818ViewCommand) -> str:
        """Return a file with line numbers, or the files of a folder."""
        name = _name(command.path)
        found = self._memories.get(name) if name else None
        if found is None:
            return self._listed(name, command.path)
        lines = found.text.split("\n")
        first, last = command.view_range or (1, -1)
        shown = lines[max(first, 1) - 1 : None if last == -1 else last]
        numbered = [f"{number:6}\t{line}" for number, line in enumerate(shown, max(first, 1))]
        return "\n".join([f"Here's the content of {command.path} with line numbers:", *numbered])

    def create(self, command: BetaMemoryTool20250818CreateCommand) -> str:
        """Save a new file."""
        name = _name(command.path)
        if self._memories.get(name) is not None:
            raise ToolError(f"File {command.path} already exists")
        self._memories.put(name, command.file_text)
        return f"File created successfully at: {command.path}"

    def str_replace(self, command: BetaMemoryTool20250818StrReplaceCommand) -> str:
        """Put a text in place of one that stands in the file once."""
        found = self._file(command.path)
        count = found.text.count(command.old_str)
        if count != 1:
            raise ToolError(
                f"No replacement was performed: old_str stands {count} times in {command.path}, "
                "and must stand there once."
            )
        self._memories.change(found, found.text.replace(command.old_str, command.new_str or ""))
        return "The memory file has been edited."

    def insert(self, command: BetaMemoryTool20250818InsertCommand) -> str:
        """Insert a text after a line."""
        found = self._file(command.path)
        lines = found.text.split("\n")
        if not 0 <= command.insert_line <= len(lines):
            raise ToolError(f"insert_line must be 0 to {len(lines)}")
        lines.insert(command.insert_line, command.insert_text.rstrip("\n"))
        self._memories.change(found, "\n".join(lines))
        return f"The file {command.path} has been edited."

    def delete(self, command: BetaMemoryTool20250818DeleteCommand) -> str:
        """Forget a file, or the files of a folder until one is refused."""
        for found in self._at(command.path):
            self._memories.forget(found)
        return f"Successfully deleted {command.path}"

    def rename(self, command: BetaMemoryTool20250818RenameCommand) -> str:
        """Give a file another path, or the files of a folder until one is refused."""
        old, new = _name(command.old_path), _name(command.new_path)
        if self._memories.get(new) is not None or self._below(new):
            raise ToolError(f"The destination {command.new_path} already exists")
        for found in self._at(command.old_path):
            self._memories.rename(found, new + found.name.removeprefix(old))
        return f"Successfully renamed {command.old_path} to {command.new_path}"

    def _file(self, path: str) -> Named:
        found = self._memories.get(_name(path))
        if found is None:
            raise ToolError(_missing(path))
        return found

    def _at(self, path: str) -> list[Named]:
        """Return the file, or the files of a folder other than the root."""
        name = _name(path)
        if not name:
            raise ToolError(f"{_ROOT} itself cannot be deleted or renamed")
        found = self._memories.get(name)
        files = [found] if found is not None else self._below(name)
        if not files:
            raise ToolError(_missing(path))
        return files

    def _below(self, folder: str) -> list[Named]:
        start = f"{folder}/" if folder else ""
        return [each for each in self._memories.all(start or None) if each.name.startswith(start)]

    def _listed(self, folder: str, path: str) -> str:
        files = self._below(folder)
        if not files and folder:
            raise ToolError(_missing(path))
        lines = sorted(f"{len(each.text.encode())}\t{_ROOT}/{each.name}" for each in files)
        return "\n".join([f"Here're the files in {path}, with their sizes in bytes:", *lines])


class AsyncRefineMemoryTool(BetaAsyncBuiltinFunctionTool):
    """The same tool, whose calls are carried out in a thread."""

    def __init__(self, refine: Refine) -> None:
        self._tool = RefineMemoryTool(refine)

    def to_dict(self) -> BetaMemoryTool20250818Param:
        return self._tool.to_dict()

    async def call(self, input: object) -> BetaFunctionToolResultType:
        """Carry out a call; ToolError says in words why it was not done."""
        return await asyncio.to_thread(self._tool.call, input)


def _name(path: str) -> str:
    """Return the path below the root; ToolError for one that leads elsewhere."""
    parts = [part for part in path.split("/") if part]
    if parts[:1] != [_ROOT.strip("/")] or ".." in parts:
        raise ToolError(f"Path must start with {_ROOT}, got: {path}")
    return "/".join(parts[1:])


def _missing(path: str) -> str:
    return f"The path {path} does not exist. Please provide a valid path."
