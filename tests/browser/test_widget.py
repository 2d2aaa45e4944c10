"""The chat panel and live cells in JupyterLab, as a person uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.browser.lab import Lab, lab
from tests.browser.scenes import kernel_says, opened, run_cell, wait_run
from tests.fake_openai import Reply, call, text

pytestmark = pytest.mark.browser

ROOT = Path(__file__).resolve().parent.parent.parent
SHOTS = ROOT / "test-results"
AXE = ROOT / "js" / "node_modules" / "axe-core" / "axe.min.js"
PAYLOADS = json.loads((ROOT / "tests" / "payloads.json").read_text(encoding="utf-8"))
RICH = (
    "# Prices\n\nThe regions differ mostly in **size**, see `df`:\n\n| region | price |\n|---|--:|\n"
    "| north | 1 |\n| south | 22 |\n\n```python\nfor i in range(3):\n    print(i)  # comment\n```\n\n"
    "Costs $5 to $10, $x_1^2$ and\n\n$$\\frac{a}{b}$$\n\n- one\n- two\n  1. nested\n\n> a quote\n"
)
DELETE = {"table": "orders", "where": "year < 2019"}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    root = tmp_path_factory.mktemp("lab")
    with lab(root) as opened_page:
        errors: list[str] = []
        opened_page.page.on("pageerror", lambda error: errors.append(str(error)))
        opened_page.page.set_default_timeout(20_000)
        opened_page.page.add_init_script(COUNT_BYTES)
        yield opened_page
        assert errors == []


#: Counts what the kernel sends in comm messages, and loses, doubles and swaps some of them when told.
COUNT_BYTES = """
window.__bytes = 0; window.__packets = 0; window.__drop = 0; window.__lost = 0;
let chance = 12345;
const next = () => (chance = (Math.imul(chance, 1103515245) + 12345) >>> 0) / 4294967296;
window.WebSocket = class extends WebSocket {
  set onmessage(listener) {
    let held = null;
    super.onmessage = event => {
      const words = typeof event.data === 'string'
        ? event.data : new TextDecoder('latin1').decode(event.data);
      if (!words.includes('"comm_msg"') || !words.includes('"all"')) return listener(event);
      window.__bytes += words.length; window.__packets++;
      if (window.__drop) {
        const fate = next();
        if (fate < window.__drop) { window.__lost++; return; }
        if (fate < window.__drop * 2) { listener(event); }
        else if (fate < window.__drop * 3 && !held) {
          held = event; setTimeout(() => { if (held === event) { held = null; listener(event); } }, 60);
          return;
        }
      }
      listener(event);
      if (held) { const late = held; held = null; listener(late); }
    };
  }
};
"""


def _ask(page: Lab, words: str) -> None:
    box = page.page.get_by_test_id("yiem-composer").last
    box.fill(words)
    box.press("Enter")


def _wait_done(page: Lab, turns: int, timeout: float = 60) -> None:
    page.page.wait_for_function(
        """turns => {
          const panel = document.querySelector('.yiem-panel');
          const all = [...panel.querySelectorAll('.yiem-turn')];
          return all.length >= turns && all.every(t => !t.querySelector('.yiem-running')
            && ['idle', 'error', 'aborted'].includes(t.dataset.state));
        }""",
        arg=turns,
        timeout=timeout * 1000,
    )


def _bodies(page: Lab, panel: int) -> list[str]:
    found: list[str] = page.page.evaluate(
        """panel => [...document.querySelectorAll('.yiem-panel')[panel].querySelectorAll('.yiem-body')]
          .map(body => body.innerHTML)""",
        panel,
    )
    return found


def _panel(page: Lab) -> None:
    for number in (0, 1):
        run_cell(page, number)
        wait_run(page, number)
    page.page.get_by_test_id("yiem-composer").wait_for()
    page.page.wait_for_selector('[data-testid="yiem-conn"][data-state="here"]')


# --- Conversations -------------------------------------------------------------------------


def test_an_answer_of_the_panel_ends_as_one_drawing_of_it(page: Lab) -> None:
    with opened(page, "panel", ["%yiem chat"], text(RICH, delay=0.002), chat=True) as server:
        _panel(page)
        _ask(page, "How do prices differ?")
        _wait_done(page, 1)
        assert server.requests[0]["messages"][-1]["content"].endswith("How do prices differ?")
        run_cell(page, 2)
        page.page.wait_for_function("() => document.querySelectorAll('.yiem-panel').length === 2")
        page.page.wait_for_function(
            "() => document.querySelectorAll('.yiem-panel')[1].querySelector('.yiem-body table')"
        )
        page.page.wait_for_timeout(500)
        first, second = _bodies(page, 0), _bodies(page, 1)
        assert first == second
        assert "<math" in first[0]
        assert page.foreign == []


def test_a_long_answer_is_few_bytes_and_whole_though_messages_are_lost(page: Lab) -> None:
    words = (RICH * 300)[:100_000]
    answer = text(words, size=160, delay=0.004)
    with opened(page, "long", [], answer, answer, chat=True):
        _panel(page)
        page.page.evaluate("window.__bytes = 0")
        _ask(page, "At length")
        _wait_done(page, 1)
        size = page.page.evaluate("window.__bytes")
        print(f"100 KB answer: {size / 1e6:.2f} MB to the browser")
        assert size <= 350_000
        page.page.evaluate("window.__drop = 0.1")
        _ask(page, "Again")
        _wait_done(page, 2)
        page.page.evaluate("window.__drop = 0")
        assert page.page.evaluate("window.__lost") > 0
        page.page.wait_for_function(
            """() => {
              const bodies = [...document.querySelector('.yiem-panel').querySelectorAll('.yiem-body')];
              return bodies.length === 2 && bodies[0].innerText === bodies[1].innerText;
            }""",
            timeout=20_000,
        )


def test_a_cell_is_live_while_it_runs_and_static_after(page: Lab) -> None:
    replies = [text("one"), call("price_of", {"country": "Portugal"}), text(RICH, delay=0.01)]
    with opened(page, "cell", ["%%yiem\nFirst", "%%yiem\nThe price?"], *replies):
        for number in (0, 1):
            run_cell(page, number)
            wait_run(page, number)
        run_cell(page, 2)
        page.page.wait_for_selector(".yiem-cell .yiem-body table")
        assert page.page.locator(".yiem-cell [data-testid=yiem-stop]").count() == 1
        wait_run(page, 2)
        page.page.wait_for_function("() => !document.querySelector('.yiem-cell')")
        assert "252,000 euros" in page.outputs()[2]
        page.save()
        kept = json.loads((page.server.root / "cell.ipynb").read_text())
        kinds = {
            kind
            for cell in kept["cells"]
            for output in cell["outputs"]
            for kind in output.get("data", {})
        }
        assert kinds <= {"text/html", "text/markdown", "text/plain"}


def test_stop_ends_a_cell_that_runs(page: Lab) -> None:
    replies = [text("one"), Reply([{"content": "so far "}], stall=True)]
    with opened(page, "stop", ["%%yiem\nFirst", "%%yiem\nGo"], *replies) as server:
        for number in (0, 1):
            run_cell(page, number)
            wait_run(page, number)
        run_cell(page, 2)
        page.page.wait_for_selector(".yiem-cell .yiem-body p")
        page.page.locator(".yiem-cell [data-testid=yiem-stop]").click()
        wait_run(page, 2, timeout=10)
        assert "stopped" in page.outputs()[2]
        assert "so far" in page.outputs()[2]
        assert server.closed


def test_steering_and_queueing_while_an_answer_runs(page: Lab) -> None:
    replies = [call("wait", {"seconds": 2}), text("steered"), text("and the next")]
    with opened(page, "queue", [], *replies, chat=True) as server:
        _panel(page)
        _ask(page, "Wait")
        page.page.wait_for_selector('.yiem-call[data-state="running"]')
        _ask(page, "Shorter please")
        page.page.wait_for_selector('[data-testid="yiem-queue-0"]')
        box = page.page.get_by_test_id("yiem-composer")
        for words in ("And then?", "Not this"):
            box.fill(words)
            page.page.get_by_role("button", name="Next").click()
            page.page.get_by_text(words, exact=False).first.wait_for()
        page.page.get_by_role("button", name="Remove Not this").click()
        _wait_done(page, 1)
        page.page.get_by_text("and the next").first.wait_for()
        said = [m["content"] for m in server.requests[-1]["messages"] if m["role"] == "user"]
        assert [words.split("\n")[-1] for words in said] == ["Wait", "Shorter please", "And then?"]


# --- Leave ---------------------------------------------------------------------------------


def test_a_question_is_answered_once_whatever_is_clicked(page: Lab) -> None:
    replies = [call("delete_rows", DELETE), text("Done.")]
    with opened(page, "allow", [], *replies, chat=True):
        _panel(page)
        _ask(page, "Delete them")
        question = page.page.locator(".yiem-ask")
        question.wait_for()
        assert 'where = "year < 2019"' in question.inner_text()
        assert page.page.evaluate("document.activeElement.dataset.testid") == "yiem-composer"
        allow = page.page.get_by_test_id("yiem-approve-call_1")
        page.page.wait_for_timeout(450)
        allow.evaluate("button => { for (let i = 0; i < 20; i++) button.click(); }")
        _wait_done(page, 1)
        assert kernel_says(page, "print(deleted)").strip() == "[('orders', 'year < 2019')]"


def test_leave_may_be_refused_with_a_note_or_given_for_other_arguments(page: Lab) -> None:
    replies = [
        call("delete_rows", DELETE, id="a"), text("I will not."),
        call("delete_rows", DELETE, id="b"), text("Done."),
    ]  # fmt: skip
    with opened(page, "deny", [], *replies, chat=True) as server:
        _panel(page)
        _ask(page, "Delete them")
        page.page.get_by_test_id("yiem-deny-a").wait_for()
        page.page.wait_for_timeout(450)
        page.page.get_by_test_id("yiem-deny-a").click()
        page.page.get_by_label("Why not").fill("too many")
        page.page.get_by_test_id("yiem-deny-send-a").click()
        _wait_done(page, 1)
        assert "too many" in server.requests[1]["messages"][-1]["content"]
        _ask(page, "Then fewer")
        page.page.get_by_test_id("yiem-edit-b").wait_for()
        page.page.wait_for_timeout(450)
        page.page.get_by_test_id("yiem-edit-b").click()
        box = page.page.locator(".yiem-ask textarea")
        box.fill("[1]")
        page.page.get_by_test_id("yiem-edit-send-b").click()
        page.page.get_by_text("one JSON object").wait_for()
        box.fill('{"table": "orders", "where": "year < 1900"}')
        page.page.get_by_test_id("yiem-edit-send-b").click()
        _wait_done(page, 2)
        assert kernel_says(page, "print(deleted)").strip() == "[('orders', 'year < 1900')]"


def test_a_page_that_is_reloaded_shows_the_question_that_waits(page: Lab) -> None:
    replies = [call("delete_rows", DELETE), text("Done.")]
    with opened(page, "reload", [], *replies, chat=True):
        _panel(page)
        _ask(page, "Delete them")
        page.page.locator(".yiem-ask").wait_for()
        page.save()
        page.page.goto(page.page.url.replace("&reset", ""))
        page.page.locator(".yiem-ask").wait_for(timeout=40_000)
        page.page.wait_for_timeout(500)
        page.page.get_by_test_id("yiem-approve-call_1").click()
        _wait_done(page, 1)
        assert kernel_says(page, "print(deleted)").strip() == "[('orders', 'year < 2019')]"


# --- Keys ----------------------------------------------------------------------------------


def test_what_is_typed_on_our_elements_never_reaches_the_notebook(page: Lab) -> None:
    with opened(
        page,
        "keys",
        ["x = 1"],
        call("price_of", {"country": "Portugal"}),
        text("Cheap."),
        chat=True,
    ):
        _panel(page)
        _ask(page, "Price?")
        _wait_done(page, 1)
        count = "window.jupyterapp.shell.currentWidget.content.widgets.length"
        before = page.page.evaluate(count)
        for selector in (
            ".yiem-line",
            ".yiem-log",
            "[data-testid=yiem-composer]",
            ".yiem-head select",
        ):
            page.page.locator(selector).first.focus()
            for key in (
                "b",
                "a",
                "d",
                "d",
                "0",
                "0",
                "Shift+Enter",
                "Control+Enter",
                "Escape",
                "ArrowDown",
                "x",
                "z",
            ):
                page.page.keyboard.press(key)
            assert page.page.evaluate(count) == before, selector
            assert page.page.locator(".jp-Dialog").count() == 0, selector
            assert page.page.locator(".yiem-panel").count() == 1, selector


def test_everything_can_be_done_with_the_keyboard(page: Lab) -> None:
    replies = [call("delete_rows", DELETE), text("Done.")]
    with opened(page, "keyboard", [], *replies, chat=True):
        _panel(page)
        page.page.get_by_test_id("yiem-composer").focus()
        page.page.keyboard.type("Delete them")
        page.page.keyboard.press("Enter")
        page.page.locator(".yiem-ask").wait_for()
        page.page.wait_for_timeout(450)
        for _ in range(12):
            page.page.keyboard.press("Shift+Tab")
            if page.page.evaluate("document.activeElement.dataset.testid") == "yiem-approve-call_1":
                break
        page.page.keyboard.press("Enter")
        _wait_done(page, 1)
        assert "orders" in kernel_says(page, "print(deleted)")
        page.page.get_by_test_id("yiem-log").focus()
        page.page.keyboard.press("F6")
        assert page.page.evaluate("document.activeElement.dataset.testid") == "yiem-composer"


# --- What a model may not do ---------------------------------------------------------------


def test_nothing_that_a_model_or_a_tool_writes_runs_loads_or_commands(page: Lab) -> None:
    links = [f"[x]({url})" for url in PAYLOADS["addresses"]]
    plain = [*PAYLOADS["scripts"], *PAYLOADS["exfiltration"], *links]
    last = [words for words in plain if "```" in words or "~~~" in words]
    everything = "\n\n".join([*(words for words in plain if words not in last), *last])
    half = len(everything) // 2
    thinking = Reply(
        [{"reasoning_content": everything[i : i + 500]} for i in range(0, len(everything), 500)]
        + [{"content": "done thinking"}]
    )
    replies = [
        text(everything, size=400),
        thinking,
        call("echo", {"words": everything[:half]}),
        text("echoed"),
    ]
    echo = (
        "@yiem.tool\ndef echo(words: str) -> str:\n    'Echo.'\n    print(words)\n    return words"
    )
    with opened(
        page, "payloads", [echo, f"%%yiem\n{everything[half:]}"], *replies, text("x"), chat=True
    ):
        page.page.evaluate("window.__hit = undefined")
        _panel(page)
        run_cell(page, 2)
        wait_run(page, 2)
        cells = page.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length")
        for number, words in enumerate(["Write", "Think", "Echo"], 1):
            _ask(page, words)
            _wait_done(page, number)
        run_cell(page, 3)
        wait_run(page, 3)
        place = page.page.url
        page.page.evaluate(
            """() => {
              for (const line of document.querySelectorAll('.yiem-line')) line.click();
            }"""
        )
        page.page.wait_for_timeout(1000)
        pages = len(page.page.context.pages)
        page.page.evaluate(
            """() => {
              const ours = '.yiem-body *, .yiem-inside *, .yiem-prompt *, .jp-OutputArea .yiem *';
              for (const element of document.querySelectorAll(ours)) {
                if (element.closest('a[href]') || element.closest('button')) continue;
                element.dispatchEvent(new MouseEvent('click', { bubbles: true }));
                element.dispatchEvent(new MouseEvent('mouseover', { bubbles: true }));
              }
            }"""
        )
        page.page.wait_for_timeout(500)
        assert page.page.evaluate("window.__hit") is None
        assert page.foreign == []
        assert page.page.url == place
        assert len(page.page.context.pages) == pages
        assert (
            page.page.evaluate("window.jupyterapp.shell.currentWidget.content.widgets.length")
            == cells
        )
        assert page.page.locator(".jp-Dialog").count() == 0


# --- Looks ---------------------------------------------------------------------------------


def _states(page: Lab) -> None:
    """A panel with every state: an answer, thoughts, calls, an error, a question."""
    _panel(page)
    for number, words in enumerate(["Which prices?", "And Portugal?", "Break", "Fail"], 1):
        _ask(page, words)
        _wait_done(page, number)
    _ask(page, "Delete the old ones")
    page.page.locator(".yiem-ask").wait_for()
    page.page.evaluate("document.querySelectorAll('.yiem-call .yiem-line')[0].click()")


STATES = [
    Reply([{"reasoning_content": "Let me look."}, *text(RICH).deltas], usage=text(RICH).usage),
    call("price_of", {"country": "Portugal"}, id="p"),
    text("It costs **252,000 euros**."),
    call("wait", {"seconds": "soon"}, id="w"),
    text("That did not work."),
    Reply(status=401, raw=b'{"error": {"message": "no key"}}', content_type="application/json"),
    call("delete_rows", DELETE, id="d"),
    text("Deleted."),
]


def _violations(page: Lab) -> list[str]:
    page.page.evaluate(AXE.read_text(encoding="utf-8"))
    found: list[str] = page.page.evaluate(
        """async () => (await axe.run('.yiem-root')).violations
          .map(v => `${v.id}: ${v.nodes.map(n => n.html.slice(0, 160)).join(' | ')}`)"""
    )
    return found


@pytest.mark.skipif(not AXE.exists(), reason="npm --prefix js ci brings axe-core")
def test_every_state_is_accessible_in_both_themes(page: Lab) -> None:
    with opened(page, "states", [], *STATES, chat=True):
        _states(page)
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            page.theme(theme)
            name = theme.split()[1].lower()
            page.page.get_by_test_id("yiem-log").evaluate(
                "log => { log.scrollTop = log.scrollHeight; }"
            )
            page.screenshot(SHOTS / f"panel-{name}.png", height=1500)
            assert _violations(page) == []
        page.screenshot(SHOTS / "panel-narrow.png", width=560, height=1500)
        page.theme("JupyterLab Light")
        page.page.get_by_test_id("yiem-stop-all").click()
        _wait_done(page, 5)
        page.screenshot(SHOTS / "panel-wide.png", width=1700, height=1500)
        assert _violations(page) == []
        page.page.set_viewport_size({"width": 1200, "height": 3000})


# --- Hosts and small services --------------------------------------------------------------


def test_code_of_an_answer_becomes_the_cell_below(page: Lab) -> None:
    answer = "Try:\n\n```python\nprint('inserted')\n```\n"
    with opened(page, "insert", ["y = 2"], text(answer), chat=True):
        _panel(page)
        _ask(page, "Code?")
        _wait_done(page, 1)
        page.page.locator(".yiem-panel .yiem-code").hover()
        page.page.get_by_role("button", name="Insert as cell").click()
        page.page.get_by_text("Inserted below").wait_for()
        sources = page.page.evaluate(
            """() => window.jupyterapp.shell.currentWidget.content.widgets
              .map(cell => cell.model.sharedModel.getSource())"""
        )
        assert sources[2] == "print('inserted')"
        assert sources[3] == "y = 2"


def test_names_are_completed_and_pictures_attached(page: Lab) -> None:
    with opened(page, "attach", ["prices = [1]"], text("Seen."), chat=True) as server:
        _panel(page)
        run_cell(page, 2)
        wait_run(page, 2)
        box = page.page.get_by_test_id("yiem-composer")
        box.press_sequentially("look at @pri")
        page.page.get_by_role("option", name="@prices").wait_for()
        box.press("ArrowDown")
        page.page.get_by_role("option", name="@prices", selected=True).wait_for()
        box.press("Enter")
        page.page.wait_for_function(
            "() => /@prices /.test(document.querySelector('[data-testid=yiem-composer]').value)"
        )
        for kind, name in (
            ("image/png", "dot.png"),
            ("image/svg+xml", "drawing.svg"),
            ("image/png", "broken.png"),
        ):
            page.page.evaluate(
                """async ([kind, name]) => {
                  const canvas = new OffscreenCanvas(8, 8); canvas.getContext('2d');
                  const bytes = name === 'dot.png' ? await canvas.convertToBlob() : new Blob(['no']);
                  const data = new DataTransfer();
                  data.items.add(new File([bytes], name, { type: kind }));
                  const box = document.querySelector('.yiem-composer');
                  box.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));
                }""",
                [kind, name],
            )
            words = {
                "dot.png": "dot.png",
                "drawing.svg": "is no PNG",
                "broken.png": "cannot be read",
            }
            page.page.get_by_text(words[name]).first.wait_for()
        box.press("Enter")
        page.page.get_by_text("is not known to take pictures").wait_for()
        assert "look at @price" in box.input_value()
        page.page.get_by_role("button", name="Remove dot.png").click()
        box.press("Enter")
        _wait_done(page, 1)
        assert "@price" in server.requests[0]["messages"][-1]["content"]


def test_a_panel_whose_kernel_has_ended_says_so(page: Lab) -> None:
    with opened(page, "ended", [], text("Hello."), chat=True):
        _panel(page)
        _ask(page, "Hi")
        _wait_done(page, 1)
        page.command("kernelmenu:restart")
        page.page.locator(".jp-Dialog button.jp-mod-accept").click()
        page.page.get_by_text("has ended. Run %yiem chat again").first.wait_for()
        assert "Hello." in page.page.locator(".yiem-panel").inner_text()
