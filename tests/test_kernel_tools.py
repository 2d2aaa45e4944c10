"""The built-in tools run code in a real IPython shell, and look without running any."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from IPython.core import async_helpers
from IPython.core.interactiveshell import InteractiveShell
from tests.factories import call
from traitlets.config import Config
from yiem_nb.errors import InvalidParametersError, ToolNotFoundError
from yiem_nb.events import AbortSignal
from yiem_nb.kernel.bridge import Bridge
from yiem_nb.kernel.functions import FunctionRunner
from yiem_nb.kernel.kernel_tools import provide_kernel_tools
from yiem_nb.kernel.toolbox import Toolbox
from yiem_nb.kernel.user_code import UserCode
from yiem_nb.messages import AgentToolResult, ImageContent
from yiem_nb.tools import AgentTool, Gate, ToolRegistry


class PlainLoop:
    """In place of the private loop, which patches asyncio for good; nothing is nested here."""

    run = staticmethod(asyncio.run)


class Notebook:
    """A shell with the built-in tools, as a workspace wires them."""

    def __init__(self) -> None:
        self.shell = InteractiveShell.instance(config=Config(HistoryManager={"enabled": False}))
        self.private: Any = PlainLoop()
        self.bridge = Bridge()
        self.registry = ToolRegistry(namespace=lambda: self.shell.user_ns)
        functions = FunctionRunner(self.registry, self.private)
        self.registry.runner, self.registry.thread_runner = functions.on_main, functions.in_thread
        self.registry.formatter = self.shell.display_formatter.format
        self.code = UserCode(self.shell, self.private)
        provide_kernel_tools(self.registry, self.code)
        self.registry.switch("python", on=True)
        self.shell.user_ns["tool"] = self.register

    def register(self, function: Any) -> Any:
        self.registry.add(function)
        return function

    def cell(self, code: str) -> None:
        self.shell.run_cell(code, store_history=True).raise_error()

    def use(self, name: str, /, **arguments: Any) -> AgentToolResult:
        """Call a tool as a run does: from the loop thread, served by this one."""
        made = self.registry.all()[name]

        async def turn() -> Any:
            return await made.execute("c1", arguments, AbortSignal(), lambda update: None)

        result: AgentToolResult = self.bridge.run_sync(turn)
        return result

    def python(self, code: str) -> AgentToolResult:
        return self.use("python", code=code)

    def close(self) -> None:
        self.bridge.thread.stop()
        InteractiveShell.clear_instance()
        # IPython's own, made by the first cell; it would be closed by nobody.
        if async_helpers._asyncio_event_loop is not None:
            async_helpers._asyncio_event_loop.close()
            async_helpers._asyncio_event_loop = None


@pytest.fixture
def notebook(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Notebook]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    made = Notebook()
    yield made
    made.close()


# --- python --------------------------------------------------------------------------------


def test_the_history_of_the_user_knows_nothing_of_it(notebook: Notebook) -> None:
    notebook.cell("100 + 23")
    shell = notebook.shell
    before = shell.execution_count, list(shell.user_ns["In"]), dict(shell.user_ns["Out"])
    result = notebook.python("x = 5\nprint('hello')\nx * 2")
    assert result.text == "hello\n\n10"
    assert (shell.execution_count, list(shell.user_ns["In"]), dict(shell.user_ns["Out"])) == before
    assert shell.user_ns["_"] == 123
    assert shell.user_ns["x"] == 5


def test_names_that_were_made_bound_anew_and_deleted_are_recorded(notebook: Notebook) -> None:
    notebook.cell("a = 1; b = [2]; c = 3")
    details = notebook.python("a = 10\nb.append(1)\ndel c\nnew = a").details
    assert details["names"] == {"created": ["new"], "changed": ["a"], "deleted": ["c"]}
    assert notebook.python("0").details.get("names") is None
    assert notebook.python("y = 1").text == "created y"


def test_an_error_is_the_models_and_shows_its_own_lines(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    result = notebook.python("print('before')\ndef f():\n    return 1 / 0\nf()")
    assert result.is_error
    assert result.text.startswith("before\n")
    assert "in f: return 1 / 0" in result.text
    assert result.text.endswith("ZeroDivisionError: division by zero")
    assert "interactiveshell" not in result.text
    syntax = notebook.python("x = 1\nif x\n  y")
    assert "SyntaxError: expected ':', line 2: if x" in syntax.text
    assert "".join(capsys.readouterr()) == "", "nothing is shown in the cell"


def test_code_may_await(notebook: Notebook) -> None:
    code = "import asyncio\nawait asyncio.gather(*(asyncio.sleep(0, n) for n in range(3)))"
    assert notebook.python(code).text == "[0,1,2]"
    assert (
        "ValueError: late"
        in notebook.python("await asyncio.sleep(0)\nraise ValueError('late')").text
    )


def test_magics_and_displays_are_captured(
    notebook: Notebook, capsys: pytest.CaptureFixture[str]
) -> None:
    result = notebook.python(
        "from IPython.display import display, Markdown, HTML, update_display\n"
        "%time z = 1\n"
        "handle = display(Markdown('*one*'), display_id='d')\n"
        "handle.update(Markdown('*two*'))\n"
        "display(HTML('<b>x</b>'))\n"
    )
    assert "*two*" in result.text
    assert "*one*" not in result.text
    assert "<b>" not in result.text, "HTML is not for the model"
    assert "Wall time" in result.text
    assert "".join(capsys.readouterr()) == ""


def test_a_flood_of_displays_is_counted(notebook: Notebook) -> None:
    result = notebook.python("from IPython.display import display\nfor n in range(200): display(n)")
    assert "(150 more displays are left out)" in result.text


def test_what_another_thread_displays_meanwhile_is_not_the_calls(notebook: Notebook) -> None:
    notebook.cell(
        "import threading\nfrom IPython.display import display\n"
        "def other():\n    t = threading.Thread(target=display, args=('from a bystander',))\n"
        "    t.start(); t.join()"
    )
    assert "bystander" not in notebook.python("other()\ndisplay('from the code')").text


def test_a_figure_is_shown_once(notebook: Notebook) -> None:
    notebook.cell("import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt")
    result = notebook.python("plt.plot([1, 2]); plt.gcf()")
    assert sum(isinstance(block, ImageContent) for block in result.content) == 1


@pytest.mark.parametrize(
    "code", ["exit()", "quit()", "import sys; sys.exit(2)", "raise SystemExit"]
)
@pytest.mark.filterwarnings("ignore:To exit")
def test_leaving_ends_the_call_alone(notebook: Notebook, code: str) -> None:
    result = notebook.python(code)
    assert result.is_error
    assert "SystemExit" in result.text
    assert notebook.python("1 + 1").text == "2"


def test_the_folder_and_the_interrupt_handler_are_put_back_and_said(notebook: Notebook) -> None:
    folder, handler = Path.cwd(), signal.getsignal(signal.SIGINT)
    result = notebook.python(
        "import os, signal\nos.chdir('/')\nsignal.signal(signal.SIGINT, signal.SIG_IGN)"
    )
    assert "The working directory was changed and has been put back." in result.text
    assert "The interrupt handler was changed and has been put back." in result.text
    assert (Path.cwd(), signal.getsignal(signal.SIGINT)) == (folder, handler)


def test_an_interrupt_ends_the_call_and_is_no_result(notebook: Notebook) -> None:
    with pytest.raises(Exception, match="Interrupted"):
        notebook.python("raise KeyboardInterrupt")
    assert notebook.shell.display_pub.__class__.__name__ != "_CapturingPublisher"
    assert notebook.python("2").text == "2"


# --- What code of the model defines --------------------------------------------------------


def test_a_function_that_the_model_defines_asks_until_the_user_has_typed_it(
    notebook: Notebook,
) -> None:
    result = notebook.python("@tool\ndef made() -> str:\n    'Made.'\n    return 'by the model'")
    assert result.added_tool_names == ("made",)
    assert notebook.registry.active()["made"].asks is True
    assert notebook.registry.notices() == [
        "made: code of the model defined it; it asks before it runs"
    ]
    notebook.cell("@tool\ndef made() -> str:\n    'Made.'\n    return 'by the user'")
    assert notebook.registry.active()["made"].asks is False


def test_a_function_cannot_be_shadowed_to_get_its_leave(notebook: Notebook) -> None:
    notebook.cell("@tool\ndef safe() -> str:\n    'Safe.'\n    return 'safe'")
    allowed = notebook.registry.active()["safe"]
    gate = Gate()
    assert type(gate.judge(allowed, call("c", "safe"), {})).__name__ == "Allowed"
    notebook.python("def safe():\n    'Safe.'\n    return 'shadowed'")
    shadow = notebook.registry.active()["safe"]
    assert type(gate.judge(shadow, call("c", "safe"), {})).__name__ == "Refused"
    assert "safe: code of the model defined it" in notebook.registry.notices()[0]


# --- variables and inspect -----------------------------------------------------------------


def test_variables_are_listed_without_values_and_without_running_their_code(
    notebook: Notebook,
) -> None:
    notebook.cell(
        "import numpy as np, pandas as pd\n"
        "class Loud:\n"
        "    def __len__(self): raise RuntimeError\n"
        "    def __getattr__(self, name): raise RuntimeError(name)\n"
        "    def __repr__(self): raise RuntimeError\n"
        "    __class__ = property(lambda self: 1 / 0)\n"
        "loud = Loud(); api_key = 'sk-verysecretverysecret'; words = ['a'] * 3\n"
        "array = np.zeros((3, 4)); frame = pd.DataFrame({'a': [1, 2]}); _hidden = 1"
    )
    text = notebook.use("variables").text
    assert "array: ndarray float64 3 x 4" in text
    assert "frame: DataFrame 2 x 1" in text
    assert "words: list of 3" in text
    assert "loud: Loud" in text
    assert "api_key: str of 23" in text
    for absent in ("verysecret", "_hidden", "In:", "np:"):
        assert absent not in text


def test_a_namespace_of_thousands_is_bounded(notebook: Notebook) -> None:
    notebook.shell.user_ns |= {f"v{n}": n for n in range(5_000)}
    text = notebook.use("variables").text
    assert len(text) < 10_000
    assert "more" in text.splitlines()[-1]


def test_an_object_is_looked_at_by_its_signature_or_its_head(notebook: Notebook) -> None:
    notebook.cell(
        "import pandas as pd\ndef f(a: int, b='x'):\n    'Adds.'\ndf = pd.DataFrame({'a': range(100)})\n"
        "class P:\n    @property\n    def p(self): raise RuntimeError('ran')\np = P()"
    )
    assert notebook.use("inspect", name="f").text == "f: function\n(a: int, b='x')\nAdds."
    assert "100 rows" in notebook.use("inspect", name="df").text
    assert "(self" in notebook.use("inspect", name="pd.DataFrame.merge").text
    for name, said in (("nobody", "There is no variable"), ("p.p", "no plain attribute")):
        result = notebook.use("inspect", name=name)
        assert result.is_error
        assert said in result.text


def test_secrets_are_not_shown(notebook: Notebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", "hunter2hunter2")
    notebook.cell(
        "password = 'swordfish'; note = 'see hunter2hunter2'; d = {'a': 'hunter2hunter2'}"
    )
    for name in ("password", "note", "d"):
        text = notebook.use("inspect", name=name).text
        assert "swordfish" not in text
        assert "hunter2" not in text


# --- %yiem tools ---------------------------------------------------------------------------


def test_built_in_tools_are_off_until_they_are_switched_on(notebook: Notebook) -> None:
    toolbox = Toolbox(notebook.registry)
    notebook.registry.switch("python", on=False)
    assert notebook.registry.active() == {}
    assert "off: python, variables, inspect" in toolbox.listed()
    assert "python(code)" in toolbox.switched(["python", "variables"], on=True)
    assert list(notebook.registry.active()) == ["python", "variables"]
    with pytest.raises(ToolNotFoundError, match="no tool nobody"):
        toolbox.switched(["inspect", "nobody"], on=True)
    assert "inspect" not in notebook.registry.active(), "all of them or none"


def test_a_function_of_the_user_wins_over_a_built_in_name(notebook: Notebook) -> None:
    notebook.cell("@tool\ndef variables() -> str:\n    'Mine.'\n    return 'mine'")
    assert notebook.use("variables").text == "mine"
    assert "variables" in notebook.registry.active()
    with pytest.raises(InvalidParametersError, match="no function of this notebook"):
        notebook.cell("@tool\ndef python() -> str:\n    'Mine.'\n    return 'mine'")


def test_a_dry_run_shows_what_the_function_would_get_and_calls_nothing(notebook: Notebook) -> None:
    notebook.cell(
        "import datetime\nran = []\n"
        "@tool\ndef book(day: datetime.date, n: int = 1) -> str:\n    'Book.'\n    ran.append(1)"
    )
    toolbox = Toolbox(notebook.registry)
    text = toolbox.tried("book", '{"day": "2026-12-01", "n": "3"}')
    assert "day = datetime.date(2026, 12, 1)  (date)" in text
    assert "n = 3  (int)" in text
    assert "runs without asking" in text
    assert notebook.shell.user_ns["ran"] == []
    for wrong, said in (("{", "no JSON"), ("[1]", "not an object"), ('{"day": "x"}', "day")):
        with pytest.raises(InvalidParametersError, match=said):
            toolbox.tried("book", wrong)


def test_rules_typed_for_tools_hold(notebook: Notebook) -> None:
    toolbox = Toolbox(notebook.registry)
    toolbox.ruled("deny", ["python"])
    assert "is not allowed" in toolbox.shown("python")
    toolbox.ruled("auto", ["py*"])
    assert "runs without asking" in toolbox.tried("python", '{"code": "1"}')
    with pytest.raises(ToolNotFoundError):
        toolbox.ruled("auto", ["nobody"])


def test_a_tool_is_shown_with_its_schema_and_what_we_know(notebook: Notebook) -> None:
    text = Toolbox(notebook.registry).shown("python")
    assert text.startswith("python: on · asks first · runs alone · brings in what others wrote")
    assert '"code"' in text


def test_a_tool_of_a_server_can_be_listed_tried_and_taken_away(notebook: Notebook) -> None:
    async def execute(*_: Any) -> AgentToolResult:
        return AgentToolResult("x")

    schema = {"type": "object", "properties": {"q": {}}, "required": ["q"]}
    hidden = "Find.\u202e"
    notebook.registry.provide(
        AgentTool(name="mcp__s__find", description=hidden, execute=execute, parameters=schema)
    )
    toolbox = Toolbox(notebook.registry)
    assert "mcp__s__find(q)  Find.⟨U+202E⟩" in toolbox.listed()
    with pytest.raises(InvalidParametersError, match="Missing required arguments: q"):
        toolbox.tried("mcp__s__find", "{}")
    assert "q = 1  (int)" in toolbox.tried("mcp__s__find", '{"q": 1}')
    notebook.registry.remove("mcp__s__find")
    assert "mcp__s__find" not in notebook.registry.active()


def test_what_runs_on_is_listed(notebook: Notebook) -> None:
    assert Toolbox(notebook.registry).running() == "Nothing that was given up is still running."


def test_what_a_tool_is_marked_as_is_shown(notebook: Notebook) -> None:
    notebook.registry.add(
        lambda n=1: n,
        name="f",
        description="F.",
        ask=lambda arguments: arguments["n"] > 10,
        read_only=True,
        thread=True,
        timeout=3,
    )
    text = Toolbox(notebook.registry).shown("f")
    assert "asks first · depending on the arguments · changes nothing · at most 3 s" in text
    assert "runs without asking" in Toolbox(notebook.registry).tried("f", '{"n": 3}')
    assert "asks first" in Toolbox(notebook.registry).tried("f", '{"n": 30}')


def test_modules_classes_and_numbers_of_numpy_are_named(notebook: Notebook) -> None:
    notebook.cell("import json\nclass K: pass\nimport numpy as np\nn = np.float64(2)")
    assert notebook.use("inspect", name="json").text.startswith("json: module")
    assert notebook.use("inspect", name="json.dumps").text.startswith("json.dumps: function")
    assert "K: class" in notebook.use("variables").text
    assert "n: float64" in notebook.use("variables").text
