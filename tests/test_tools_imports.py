"""What is loaded before it is needed."""

import subprocess
import sys


def test_importing_the_tools_loads_none_of_the_libraries_they_know() -> None:
    heavy = "griffe pandas numpy matplotlib PIL IPython httpx"
    code = (
        "import sys\nfrom yiem_nb.tools import tool_from_function\n"
        "def f(x: int):\n    'Say.'\n"
        "tool_from_function(f)\n"
        f"print(sorted(set({heavy!r}.split()) & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_the_built_in_tools_load_no_docstring_parser() -> None:
    """They are made with the first cell of every kernel, though few switch them on."""
    code = (
        "import sys\nfrom yiem_nb.tools import ToolRegistry\n"
        "from yiem_nb.kernel.kernel_tools import provide_kernel_tools\n"
        "provide_kernel_tools(ToolRegistry(), None)\nprint('griffe' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
