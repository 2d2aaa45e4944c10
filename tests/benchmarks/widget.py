"""The Markdown engine in Chromium: script time and longest step, for long and for unkind texts.

uv run --group test python -m tests.benchmarks.widget      (needs node, for the engine alone)
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright
from tests.browser.lab import FLAGS, chromium

JS = Path(__file__).resolve().parent.parent.parent / "js"
PARAGRAPH = (
    "The regions differ mostly in **size**, see `df` and [a link](https://example.com/x). "
    "It costs $5 to $10, and $x_1^2$ is a formula. "
)
SECTION = (
    f"# Title\n\n{PARAGRAPH * 3}\n\n- one\n- two **bold**\n- three\n\n| a | b |\n|---|--:|\n"
    "| 1 | 2 |\n| 3 | 4 |\n\n```python\nfor i in range(10):\n    print(i)  # comment\n```\n\n"
)
#: Name, text, size of a delta, deltas between two drawings.
CASES: list[tuple[str, str, int, int]] = [
    ("200 KB, 4-char deltas", (SECTION * 400)[:200_000], 4, 10),
    ("118 KB fence", "```python\n" + "x = compute(1, 2)\n" * 6_900, 80, 1),
    ("2,000 rows", "| a | b |\n|---|---|\n" + "| 12 | word |\n" * 2_000, 80, 1),
    ("2,000 items", "".join(f"- item {n} **bold**\n" for n in range(2_000)), 80, 1),
    ("60 KB paragraph", PARAGRAPH * 470, 80, 1),
    ("120-deep list", "".join("  " * n + "- x\n" for n in range(120)), 80, 1),
    ("3,000 >", ">" * 3_000 + " x", 80, 1),
    ("20,000 backticks", "`" * 20_000, 80, 1),
    ("5,000 brackets", "[" * 5_000, 80, 1),
]
RUN = """
async ([text, size, every]) => {
  const root = document.createElement('div');
  document.body.replaceChildren(root);
  const stream = new engine.MarkdownStream(root);
  let total = 0, longest = 0, steps = 0, due = 0;
  const step = work => {
    const start = performance.now(); work(); const took = performance.now() - start;
    total += took; longest = Math.max(longest, took); steps++;
    // As the view does: a step may cost a quarter of the time to the next one.
    return took;
  };
  let count = 0, debt = 0;
  for (let at = 0; at < text.length; at += size) {
    stream.append(text.slice(at, at + size));
    if (++count % every) continue;
    // Deltas of 80 characters come 30 times a second: 33 ms pass for each drawing that is left out.
    if (debt > 33) { debt -= 33; continue; }
    debt += Math.max(4 * step(() => stream.draw()) - 33, 0);
  }
  step(() => stream.finish());
  const shown = root.innerText.length;
  return { total, longest, steps, nodes: root.querySelectorAll('*').length, shown };
}
"""


def main() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        out = Path(folder) / "engine.js"
        build = [
            "npx",
            "esbuild",
            "src/markdown/stream.ts",
            "--bundle",
            "--minify",
            "--format=iife",
        ]
        subprocess.run(
            [*build, "--global-name=engine", f"--outfile={out}", "--log-level=error"],
            cwd=JS,
            check=True,
        )
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        page = browser.new_page()
        page.set_content("<body></body>")
        page.add_script_tag(path=str(out))
        page.evaluate(RUN, [SECTION * 5, 40, 1])
        for name, text, size, every in CASES:
            found: dict[str, Any] = page.evaluate(RUN, [text, size, every])
            print(
                f"{name:<24} script {found['total'] / 1000:5.2f} s, longest step {found['longest']:5.0f} ms, "
                f"{found['steps']} drawings, {found['nodes']} nodes"
            )
        browser.close()
    print("goals                    200 KB: 3 s in total, 50 ms a step; the others: 100 ms a step")
    print(f"load average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
