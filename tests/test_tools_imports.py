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
