"""What a model writes is shown, and can do nothing else."""

from __future__ import annotations

import subprocess
import sys
import time
from html.parser import HTMLParser
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from yiem_nb.messages import Usage, UsageCost
from yiem_nb.render import (
    CallView,
    StreamingMarkdown,
    call_bundle,
    footer_bundle,
    notice_bundle,
    render_html,
    safe_markdown,
    status_bundle,
    text_bundle,
    thinking_bundle,
)
from yiem_nb.render.highlight import highlighted
from yiem_nb.render.markdown import is_safe_link
from yiem_nb.render.text import cleaned, clipped, settled, size_of, visible
from yiem_nb.render.view import money, seconds_text

ALLOWED: dict[str, set[str]] = {
    **dict.fromkeys(
        [
            "p",
            "h1",
            "h2",
            "h3",
            "h4",
            "h5",
            "h6",
            "ul",
            "li",
            "blockquote",
            "pre",
            "code",
            "em",
            "strong",
            "s",
            "hr",
            "br",
            "table",
            "thead",
            "tbody",
            "tr",
            "span",
            "details",
            "summary",
            "div",
        ],
        {"style"},
    ),
    "div": {"class", "style"},
    "ol": {"start"},
    "th": {"style"},
    "td": {"style"},
    "a": {"href", "rel", "target", "title"},
    "img": {"src", "alt", "style", "title"},
}
PIXEL = "data:image/png;base64,iVBORw0KGgo="


class Inspector(HTMLParser):
    """Complains about every element, attribute and address that is not of our choosing."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[str] = []
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        allowed = ALLOWED.get(tag)
        if allowed is None:
            self.problems.append(f"<{tag}>")
            return
        for name, value in attrs:
            if name not in allowed:
                self.problems.append(f"<{tag} {name}>")
            if name == "href" and urlsplit(value).scheme not in ("http", "https", "mailto"):
                self.problems.append(f"href {value}")
            if name == "src":
                self.addresses.append(value)
                if not value.startswith("data:image/"):
                    self.problems.append(f"src {value}")
            if name == "style" and ("url(" in value or "expression" in value):
                self.problems.append(f"style {value}")
            if name == "class" and value != "yiem":
                self.problems.append(f"class {value}")

    def handle_decl(self, decl: str) -> None:
        self.problems.append(decl)


def problems(html: str) -> list[str]:
    inspector = Inspector()
    inspector.feed(html)
    return inspector.problems


SCHEMES = ["javascript:alert(1)", "JaVaScRiPt:alert(1)", "java\tscript:alert(1)", "vbscript:x",
           "data:text/html,<script>alert(1)</script>", "data:image/svg+xml;base64,PHN2Zz4=",
           "file:///etc/passwd", "//evil.example/x", "/api/contents", "&#106;avascript:alert(1)",
           "https://evil.example/?q=secret", "blob:x", "\x01javascript:alert(1)"]  # fmt: skip
FORMS = ["[a]({})", "![a]({})", "[![a]({})]({})", "<{}>", "[a][r]\n\n[r]: {}", "![a][r]\n\n[r]: {}",
         "![r]\n\n[r]: {}", '<img src="{}">', '<a href="{}">x</a>', "| a |\n|--|\n| ![x]({}) |",
         "- ![x]({})", "> ![x]({})", "**![x]({})**", "![x](<{}>)", '[a]({} "onclick=alert(1)")']  # fmt: skip
TAGS = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg onload=alert(1)>",
        "<iframe src=//evil>", "<form action=//evil><button>", "<style>*{background:url(//evil)}</style>",
        '<div data-commandlinker-command="x">', "<math><mi xlink:href=x>", "<meta http-equiv=refresh>",
        "<base href=//evil>", "<object data=x>", "<!--x--><b>", "<?php x?>", "<![CDATA[x]]>",
        "<a href=`javascript:alert(1)`>", "<details open ontoggle=alert(1)>"]  # fmt: skip
WRAPS = ["{}", "# {}", "- {}", "> {}", "`` ` `` {}", "*{}*", "x {} y", "| a |\n|--|\n| {} |", "\\{}",
         "[{}](https://a.b)", "$x$ {}", "1. a\n\n   {}"]  # fmt: skip
PAYLOADS = [form.replace("{}", scheme) for form, scheme in product(FORMS, SCHEMES)] + [
    wrap.replace("{}", tag) for wrap, tag in product(WRAPS, TAGS)
]


def test_no_payload_becomes_an_element_or_an_address_of_its_own() -> None:
    assert len(PAYLOADS) >= 300
    found = {payload: bad for payload in PAYLOADS if (bad := problems(render_html(payload)))}
    assert not found


def test_no_payload_survives_in_the_markdown_that_goes_to_other_hosts() -> None:
    host = MarkdownIt("commonmark", {"html": True}).enable("table")
    leaks = {}
    for payload in PAYLOADS:
        html = host.render(safe_markdown(payload))
        inspector = Inspector()
        inspector.feed(html)
        bad = [p for p in inspector.problems if not p.startswith("href")]
        if bad:
            leaks[payload] = (safe_markdown(payload), bad)
    assert not leaks


@settings(max_examples=150, deadline=None)
@given(st.text(st.sampled_from("ab `*_[]()!<>\\$#-|>\n:/&;\"'=x1"), max_size=60))
def test_any_text_is_rendered_safely_in_both_forms(text: str) -> None:
    assert not problems(render_html(text))
    inspector = Inspector()
    inspector.feed(
        MarkdownIt("commonmark", {"html": True}).enable("table").render(safe_markdown(text))
    )
    assert not [p for p in inspector.problems if p.startswith(("<", "src"))]


@settings(max_examples=60, deadline=None)
@given(st.text(max_size=80))
def test_arbitrary_text_never_raises(text: str) -> None:
    render_html(text)
    safe_markdown(text)
    text_bundle(text)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["# h\n", "a *b* c\n", "\n", "- x\n", "  - y\n", "```py\nx=1\n", "```\n",
                              "| a |\n|--|\n| 1 |\n", "> q\n", "$$\nx\n$$\n", "===\n", "1. z\n"]), max_size=14),
    st.integers(1, 7),
)  # fmt: skip
def test_a_streamed_text_ends_as_it_would_whole(parts: list[str], size: int) -> None:
    text = "".join(parts)
    streaming = StreamingMarkdown()
    for start in range(0, len(text), size):
        streaming.feed(text[start : start + size])
        assert not problems(streaming.html)
    assert streaming.text == text
    assert streaming.finish() == render_html(text)
    assert streaming.html == render_html(text)


def test_a_list_that_goes_on_after_a_blank_line_stays_one_list() -> None:
    streaming = StreamingMarkdown()
    for character in "1. z\n\n1. z\n":
        streaming.feed(character)
        assert streaming.html
    assert streaming.html == render_html("1. z\n\n1. z\n")


def test_prices_stay_prices_and_mathematics_is_left_to_the_host() -> None:
    html = render_html("It costs $5 to $10, but $x_1 * y_1$ and \\(a*b*c\\), $$z$$, \\[q\\].")
    assert "<span>$</span>5 to <span>$</span>10" in html
    for source in ("$x_1 * y_1$", "\\(a*b*c\\)", "$$z$$", "\\[q\\]"):
        assert f"<span>{source}</span>" in html
    assert "<em>" not in html


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$ a$", "<span>$</span> a<span>$</span>"),
        ("$a $", "<span>$</span>a <span>$</span>"),
        ("$a$1", "<span>$</span>a<span>$</span>1"),
        ("$a\\$b$", "<span>$a\\$b$</span>"),
        ("$", "<span>$</span>"),
        ("$$", "<span>$</span><span>$</span>"),
        ("\\(a", "(a"),
        ("\\$5", "<span>$</span>5"),
    ],
)
def test_dollars_follow_pandocs_rule(text: str, expected: str) -> None:
    assert render_html(text) == f"<p>{expected}</p>\n"


@pytest.mark.parametrize("text", ["$$\na_1\n+ b_1\n$$", "\\[\na_1\n\\]", "$$a_1$$"])
def test_display_mathematics_reaches_the_page_untouched(text: str) -> None:
    html = render_html(f"before\n\n{text}\n\nafter")
    assert text in html
    assert text in render_html(f"right below\n{text}")
    assert "<em>" not in html


@pytest.mark.parametrize(
    "text", ["$$\na\n\nb\n$$", "$$\nnever closed", "- $$\n  a\nb", "    $$\n    x"]
)
def test_display_mathematics_that_is_not_closed_is_text(text: str) -> None:
    assert "math" not in render_html(text)
    assert not problems(render_html(text))


def test_an_address_nobody_can_read_is_text() -> None:
    assert not is_safe_link("http://[bad")
    assert "<code>$$" in render_html("text\n\n    $$\n    x\n    $$")
    assert "<span>$a$</span></a>" in render_html("[$a$](https://h.example)")


def test_images_from_elsewhere_are_links_and_small_ones_are_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("yiem_nb.render.markdown.MAX_IMAGE_CHARACTERS", 1_000)
    html = render_html(
        f"![a cat](https://h.example/c.png) ![]({'https://h.example'}) ![p]({PIXEL})"
    )
    assert ">image: a cat (h.example)</a>" in html
    assert ">image (h.example)</a>" in html
    assert f'<img src="{PIXEL}" alt="p"' in html
    assert "<img" not in render_html(f"![big](data:image/png;base64,{'A' * 2_000})")
    assert render_html("[![a](https://i.example/x)](https://b.example)").count("<a ") == 1
    assert "<a>x</a>" in render_html(f"[x]({PIXEL})")
    assert safe_markdown(f"![p]({PIXEL})") == f"![p]({PIXEL})"


def test_code_is_coloured_by_the_host_and_plain_where_nobody_knows_the_language() -> None:
    html = render_html('```python\ndef f():  # c\n    return "s", 1, not x\n```')
    assert html.count("var(--yk)") >= 3
    assert "var(--ys)" in html
    assert (
        "--yk:var(--jp-mirror-editor-keyword-color"
        in text_bundle("```python\nif x: 1\n```")["text/html"]
    )
    assert render_html("```nonsense\n<b>\n```") == "<pre><code>&lt;b&gt;\n</code></pre>\n"
    assert "span" not in highlighted("if x: pass\n" * 20_000, "python")
    assert highlighted("if", "python").endswith("</span>")


def test_code_is_never_touched_in_the_markdown_form() -> None:
    source = "`<b>` and ``a ` <i>``\n\n```\n![x](https://e.example)\n<b>\n```\n\n    <indented>\n"
    assert safe_markdown(source) == source
    assert safe_markdown("<https://a.b> <x@y.z> <b>") == "<https://a.b> <x@y.z> &lt;b>"
    assert safe_markdown("\\![a](u) \\\\![a](u)") == "\\![a](u) \\\\\\![a](u)"
    assert safe_markdown("$a<b$ `unclosed <i>") == "$a< b$ `unclosed &lt;i>"
    assert safe_markdown("plain") == "plain"
    table = "| <b> | <i> |\n|--|--|\n| <u> | 2 |"
    assert safe_markdown(table) == table.replace("<", "&lt;")
    assert safe_markdown("[r]: https://a.b\n<b>\n\n\n<i>") == "[r]: https://a.b\n&lt;b>\n\n\n&lt;i>"


@pytest.mark.parametrize(
    "text",
    [">" * 3000 + "x", "\n".join("  " * i + "- a" for i in range(500)), "`" * 20_000, "[" * 5_000,
     "a " * 30_000, "*" * 5_000, "$" * 20_000, "<" * 20_000],
    ids=["quotes", "lists", "ticks", "brackets", "paragraph", "stars", "dollars", "angles"],
)  # fmt: skip
def test_what_no_one_would_write_is_shown_all_the_same(text: str) -> None:
    assert not problems(render_html(text))
    safe_markdown(text)


def test_a_text_nested_too_deep_is_shown_as_it_stands() -> None:
    assert render_html(">" * 300 + "deep").startswith("<pre>&gt;&gt;")


def test_terminal_tricks_are_dropped_and_hidden_characters_are_spelt_out() -> None:
    assert cleaned("a\x1b[31mb\x1b[0m\x1b]8;;http://e\x07c\x07\r\nd\x00") == "abc\nd"
    assert visible("rm\u202e\u200b\x07") == "rm⟨U+202E⟩⟨U+200B⟩⟨U+0007⟩"
    assert size_of("a") == "1 character"
    assert size_of("ab\ncd") == "2 lines, 5 characters"
    assert clipped("x" * 10) == "x" * 10
    assert "5,000 characters are left out" in clipped("x" * 9_000, 4_000)


TAG = "<img src=https://e.example/x>"
IMAGE = "![a](https://e.example/x)"
#: Each was once code to us and a tag or an image to markdown-it or to JupyterLab's own parser.
DISAGREEMENTS = [
    f"| a | b |\n|--|--|\n| ` {TAG} | ` |", f"| a | b |\n|--|--|\n| ` {IMAGE} | ` |",
    f"| a |\n|--|\n| `a \\| ` {TAG} ` |", f"`a\n<div>{TAG}\n`", f"`a\n<!-- -->{TAG}\n`",
    f"$$\n```\n$$\n```\n{TAG}", f"\\[\n~~~\n\\]\n~~~\n{TAG}", f"$a ` b$ ` {TAG} `", f"\\(a ` b\\) ` {IMAGE} `",
    f'![a <img src="https://e.example/x" alt="]({PIXEL})">', f"https://e.example/`{TAG}`",
    f"https://e.example/\\{TAG}", f"- a\n\nb\n\n    {TAG}", f"a | b\n--|--\n===\n\t{TAG}",
]  # fmt: skip


@pytest.mark.parametrize("text", DISAGREEMENTS)
def test_what_is_code_to_one_reader_alone_keeps_no_tag_and_no_image(text: str) -> None:
    safe = safe_markdown(text)
    assert "<img" not in safe
    assert "<div" not in safe
    assert "![" not in safe.replace("\\![", "").replace("! [", "")


PIECES = ["`", "``", "```\n", "~~~\n", "\n", "\n\n", "> ", "- ", "1. ", "    ", "\t", "|", "|--|--|\n",
          "| a | b |\n|--|--|\n", "\\", "\\|", "$", "$$", "\\(", "\\)", "\\[", "\\]", "[", "]", "(", ")", "![",
          TAG, IMAGE, "![r]", "[r]: https://e.example\n", "<div>", "<!-- ", "-->", "<!A", "<?p", "# ", "---\n",
          "===\n", "<https://a.b>", f"![a]({PIXEL})", "[a](<", '"', "a", "b "]  # fmt: skip


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=22).map("".join))
def test_no_composition_of_markdown_keeps_a_tag_or_a_remote_image(text: str) -> None:
    assert not problems(render_html(text))
    inspector = Inspector()
    host = MarkdownIt("commonmark", {"html": True}).enable("table")
    inspector.feed(host.render(safe_markdown(text)))
    assert not [p for p in inspector.problems if p.startswith(("<", "src"))]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.sampled_from([*PIECES, "\x1b", "\x1b[", "31m", "\r", "\ud83d", "\ude00"]), max_size=16
    )
)
def test_any_chunking_ends_as_the_whole(parts: list[str]) -> None:
    streaming = StreamingMarkdown()
    for part in parts:
        streaming.feed(part)
        assert not problems(streaming.html)
    assert streaming.finish() == streaming.html == render_html("".join(parts))


def test_paragraphs_of_one_line_are_rendered_once() -> None:
    streaming = StreamingMarkdown()
    for delta in ("one\n\nt", "wo\n\nthree"):
        streaming.feed(delta)
        assert streaming.html
    assert streaming._tail == "two\n\nthree"


def test_what_a_delta_cuts_in_two_is_not_shown_in_halves() -> None:
    streaming = StreamingMarkdown()
    for delta in ("a \x1b[3", "1mred\x1b]8;;http", "://e\x07 b\r", "\nc \ud83d", "\ude00"):
        streaming.feed(delta)
        assert "31m" not in streaming.html
        assert "://e" not in streaming.html
    assert streaming.html == "<p>a red b\nc \U0001f600</p>\n"
    assert settled("a\x1b[31m") == ("a\x1b[31m", "")


def test_an_address_that_is_still_being_written_is_not_kept() -> None:
    streaming = StreamingMarkdown()
    for delta in ("[r]: https://exa", "mple.com\n\nx\n\n", "see [r]\n\ny\n"):
        streaming.feed(delta)
        assert streaming.html is not None
    assert 'href="https://example.com"' in streaming.html


def test_code_shows_what_hides_and_nothing_sent_is_half_a_character() -> None:
    html = render_html("`a\u202eb`\n\n    c\u200bd\n\n```\ne\u2066f\n```")
    assert all(spelt in html for spelt in ("a⟨U+202E⟩b", "c⟨U+200B⟩d", "e⟨U+2066⟩f"))
    assert render_html("a\ud800b") == "<p>a\ufffdb</p>\n"
    assert cleaned("\ud83d\ude00") == "\U0001f600"


def test_dollars_and_backslashes_of_ours_are_no_mathematics() -> None:
    call = call_bundle(CallView("f", {"a": "$5", "b": "$6"}, "ok", 0.1))
    assert "<span>$</span>5" in call["text/html"]
    assert "\\<span>(</span>a" in render_html("\\\\(a\\\\)")
    assert "</span>0.1 s" not in call["text/html"]


@pytest.mark.parametrize("text", ["\\[\n" * 10_000, "\\[ a\n" * 10_000, "$$ a\n" * 10_000])
def test_formulas_that_never_end_cost_little(text: str) -> None:
    start = time.process_time()
    assert not problems(render_html(text))
    assert time.process_time() - start < 5


def test_code_stays_byte_for_byte_where_all_agree() -> None:
    for text in (
        "text\n\n    <b>\n",
        "| a |\n|--|\n| `<b>` |",
        "- ```\n  <b>\n  ```",
        "$a$ `<b>` $",
    ):
        assert safe_markdown(text) == text


# --- Pieces of an answer -------------------------------------------------------------------


def test_every_piece_says_the_same_in_each_form_and_is_safe() -> None:
    nasty = "<img src=x onerror=alert(1)> `a`\u202e"
    call = CallView("f", {"a": nasty}, "ok", 0.1, "14 rows", nasty, nasty)
    pieces = [
        text_bundle(nasty),
        call_bundle(call),
        status_bundle(nasty, 2.4),
        notice_bundle(nasty),
        thinking_bundle(nasty, 3.0),
        footer_bundle(nasty, Usage(812, 96, 640), 6.1),
    ]
    for piece in pieces:
        assert not problems(piece["text/html"])
        assert piece["text/plain"]


def test_a_call_is_one_line_with_a_fold() -> None:
    bundle = call_bundle(
        CallView("price_of", {"country": "Portugal"}, "ok", 0.12, "14 rows", "p", "r")
    )
    assert bundle["text/plain"] == '▸ price_of(country="Portugal") → 14 rows · 0.1 s'
    assert bundle["text/markdown"] == '` ▸ price_of(country="Portugal") → 14 rows · 0.1 s `'
    html = bundle["text/html"]
    assert "<details><summary" in html
    assert "country = &quot;Portugal&quot;" in html
    assert "printed · 1 character" in html
    assert "the model received · 1 character" in html


@pytest.mark.parametrize(
    ("state", "line"),
    [
        ("running", "▸ f() · running"),
        ("waiting", "▸ ? f() · waiting for you"),
        ("error", "▸ ✕ f() · failed\n  ValueError: no"),
        ("denied", "▸ ✕ f() · not allowed"),
        ("aborted", "▸ ■ f() · stopped"),
    ],
)
def test_every_state_of_a_call_has_a_mark_and_a_word(state: Any, line: str) -> None:
    assert call_bundle(CallView("f", {}, state, result="x\nValueError: no"))["text/plain"] == line


def test_long_arguments_are_cut_on_the_line_and_whole_in_the_fold() -> None:
    bundle = call_bundle(CallView("f", {"a": "x" * 100, "b": "`" * 3}, "ok"))
    assert "x" * 61 not in bundle["text/plain"]
    assert "x" * 100 in bundle["text/html"]
    assert bundle["text/markdown"].startswith("```` ")
    assert "arguments · 4 characters" in call_bundle(CallView("f"))["text/html"]
    assert call_bundle(CallView("f", {}, "error"))["text/plain"] == "▸ ✕ f() · failed"


def test_the_last_line_says_what_it_took() -> None:
    usage = Usage(172, 96, 640, cost=UsageCost(total=0.0004))
    assert footer_bundle("m", usage, 6.1)["text/plain"] == (
        "m · 812 in (640 cached) · 96 out · 6.1 s · $0.0004"
    )
    assert (
        footer_bundle("m", Usage(reported=False), 1)["text/plain"] == "m · tokens unknown · 1.0 s"
    )
    assert footer_bundle("m", note="why")["text/plain"] == "m · why"
    assert [money(d) for d in (0.00001, 0.25, 1.5)] == ["< $0.0001", "$0.25", "$1.50"]
    assert [seconds_text(s) for s in (0.04, 12.4, 125)] == ["0.0 s", "12 s", "2 min 5 s"]
    assert status_bundle("m")["text/plain"] == "m · waiting"
    assert thinking_bundle("x")["text/plain"] == "▸ thought"


def test_nothing_heavy_is_imported_before_the_first_fence() -> None:
    code = (
        "import sys; from yiem_nb.render import render_html; render_html('hi');"
        "assert 'pygments.lexers' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
