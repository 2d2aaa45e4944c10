"""The magics themselves: they understand a line, say what was understood, and hand it on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.core.magic import Magics, line_cell_magic, magics_class, no_var_expand
from traitlets import Bool, Unicode, validate

from yiem_nb.errors import CommandError, ErrorCode
from yiem_nb.magics.grammar import (
    ChatCommand,
    Command,
    CompactCommand,
    HelpCommand,
    KeyCommand,
    LeaveCommand,
    ModelCommand,
    PrivateCommand,
    Question,
    ResetCommand,
    RunningToolsCommand,
    SessionCommand,
    ShowToolCommand,
    StopCommand,
    SwitchToolsCommand,
    ToolsCommand,
    TrialCommand,
    UsageCommand,
    check_prompt,
    help_text,
    parse_cell_line,
    parse_line,
)

if TYPE_CHECKING:
    from yiem_nb.kernel.front import FrontEnd
    from yiem_nb.kernel.workspace import Workspace
    from yiem_nb.providers.resolve import Choice

__all__ = ["YiemMagics"]


@magics_class
class YiemMagics(Magics):
    """Ask a language model from a cell."""

    model = Unicode("", help="The model: local, provider/id, or any id with base_url.").tag(
        config=True
    )
    base_url = Unicode("", help="Root of a server that speaks chat completions.").tag(config=True)
    api_key_env = Unicode("", help="The NAME of the environment variable that holds the key.").tag(
        config=True
    )
    api = Unicode("", help="The dialect of the server at base_url; chat completions if empty.").tag(
        config=True
    )
    show_usage = Bool(
        True, help="Show tokens and time below an answer; off for clean differences in git."
    ).tag(config=True)

    _workspace: Workspace | None = None

    @validate("api_key_env")
    def _name_not_key(self, proposal: Any) -> str:
        from yiem_nb.providers.keys import check_variable_name

        return check_variable_name(proposal["value"])

    @property
    def workspace(self) -> Workspace:
        """The kernel's conversation; what it needs is imported with its first use."""
        if self._workspace is None:
            from yiem_nb.kernel.workspace import Workspace
            from yiem_nb.providers.resolve import Settings
            from yiem_nb.tools import registry

            self._workspace = Workspace(
                self.shell,
                lambda: Settings(self.model, self.base_url, self.api_key_env, self.api),
                registry,
            )
            self._workspace.front = self._front(self._workspace)
        return self._workspace

    def _front(self, workspace: Workspace) -> FrontEnd | None:
        """Return live views, where there is a kernel whose pages could show them."""
        from yiem_nb.kernel import compat

        if not compat.has_kernel(self.shell):
            return None
        from yiem_nb.widget.front import Front

        return Front(workspace, self._take_model)

    def _take_model(self, name: str) -> Choice:
        """Choose a model; a name that means nothing leaves the choice as it was."""
        choice = self.workspace.choose(name, headless=False)
        self.model = name
        self.workspace.use(None)
        return choice

    def chat(self) -> None:
        """Show the chat panel in this cell."""
        front = self.workspace.front
        if front is None:
            raise CommandError(
                "A chat panel needs a notebook.",
                hint="Ask with %yiem here.",
                code=ErrorCode.KERNEL_UNAVAILABLE,
            )
        front.show_panel()

    def close(self) -> None:
        """Stop what runs and finish writing."""
        if self._workspace is not None:
            self._workspace.close()

    @no_var_expand
    @line_cell_magic
    def yiem(self, line: str, cell: str | None = None) -> None:
        """Ask a language model: ``%yiem question``, or ``%%yiem`` with the prompt below.

        ``%yiem help`` shows the commands and options.
        """
        if cell is None:
            self._line(line)
            return
        options = parse_cell_line(line)
        text = f"{options.text}\n{cell}" if options.text else cell
        self.workspace.ask(
            check_prompt(text).strip("\n"),
            model=options.model or "",
            how=options.how,
            show_usage=options.usage and self.show_usage,
        )

    def _line(self, line: str) -> None:
        parsed = parse_line(line)
        if isinstance(parsed, Question):
            self.workspace.ask(parsed.text.strip(), show_usage=self.show_usage)
        elif isinstance(parsed, UsageCommand):
            self._say(self.workspace.desk.usage())
        elif isinstance(parsed, KeyCommand):
            from yiem_nb.kernel.key_desk import KeyDesk

            self._say(getattr(KeyDesk(self.shell), parsed.do)(parsed.what))
        elif (said := self._about_tools(parsed)) is not None:
            self._say(said)
        else:
            self._command(parsed)

    def _command(self, command: Command) -> None:
        match command:
            case HelpCommand():
                self._say(help_text())
            case ModelCommand(name=None):
                self._say(self.workspace.models())
            case ModelCommand(name=str() as name):
                self._choose(name)
            case SessionCommand(do=do, what=what):
                desk = getattr(self.workspace.desk, do)
                self._say(desk() if what is None else desk(what))
            case PrivateCommand(on=on):
                self._say(self.workspace.private(on=on))
            case ChatCommand():
                self.chat()
            case CompactCommand(instructions=instructions):
                self._say(self.workspace.compact(instructions))
            case StopCommand():
                self._say("stopped" if self.workspace.stop() else "nothing was running")
            case ResetCommand():
                self.workspace.reset()
                self._say(
                    "A new conversation begins with the next prompt; the file keeps the old one."
                )

    def _about_tools(self, command: Command) -> str | None:
        """Answer a command about tools; ``None`` if it is about something else."""
        match command:
            case ToolsCommand():
                return self.workspace.toolbox.listed()
            case SwitchToolsCommand(names=names, on=on):
                return self.workspace.toolbox.switched(names, on=on)
            case LeaveCommand(leave=leave, names=names):
                return self.workspace.toolbox.ruled(leave, names)
            case ShowToolCommand(name=name):
                return self.workspace.toolbox.shown(name)
            case TrialCommand(name=name, arguments=arguments):
                return self.workspace.toolbox.tried(name, arguments)
            case RunningToolsCommand():
                return self.workspace.toolbox.running()
            case _:
                return None

    def _choose(self, name: str) -> None:
        """Choose a model; a name that means nothing leaves the choice as it was."""
        self._say(f"model: {self._take_model(name).line}")

    @staticmethod
    def _say(text: str) -> None:
        print(text)  # noqa: T201 - the answer to a command
