"""An export reads well, holds everything, loads nothing and runs nothing, whatever the file holds."""

import base64
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from yiem_nb.messages import (
    AgentToolCall,
    AssistantMessage,
    ImageContent,
    ReasoningContent,
    StopReason,
    TextContent,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from yiem_nb.models import Limits
from yiem_nb.render.portable import closed_markdown
from yiem_nb.session import (
    BranchSummaryEntry,
    CompactionEntry,
    CustomMessageEntry,
    JsonlSessionStorage,
    MessageEntry,
    Session,
    SessionOptions,
    SessionTree,
    UnknownEntry,
)
from yiem_nb.session.export import export
from yiem_nb.session.lines import dump_line
from yiem_nb.session.reading import reading

UNLIMITED = Limits(reads_per_second=None, writes_per_second=None)
FORMATS = ["html", "md"]
PAYLOADS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    '"><svg/onload=alert(1)>',
    "![x](https://evil.example/?q=1)",
    "[a](javascript:alert(1))",
    "<iframe src=//evil.example></iframe>",
    "</details></section><style>@import 'https://evil.example'</style>",
    "`" * 7 + "\n<script>alert(1)</script>",
    "</title><script>alert(1)</script>",
]


class Page(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.ids, self.links, self.sources, self.handlers = [], [], [], [], []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            elif name == "href":
                self.links.append(value)
            elif name in {"src", "srcset", "data", "poster", "action", "background"}:
                self.sources.append(value)
            elif name.startswith("on"):
                self.handlers.append(name)


def new(folder, **more):
    options = SessionOptions(folder / "s.yiem.jsonl", **more)
    return Session(JsonlSessionStorage.create(options, limits=UNLIMITED))


def say(session, *messages):
    return [session.storage.append_entry(MessageEntry(message=one)) for one in messages]


def hostile(folder, payload):
    """Put a payload wherever a file has room for words."""
    session = new(folder, metadata={"notebook": payload})
    call = AgentToolCall.model_validate(
        {"type": "toolCall", "id": payload, "name": payload, "arguments": {payload: payload}}
    )
    image = ImageContent.model_validate({"type": "image", "data": payload, "mimeType": payload})
    first, *_ = say(
        session,
        UserMessage([TextContent(payload), image]),
        AssistantMessage([ReasoningContent(payload), TextContent(payload), call], model=payload),
        ToolResultMessage(
            payload, payload, payload, details={"summary": payload, "output": payload}
        ),
        ToolResultMessage("lost", payload, [TextContent(payload), image]),
        AssistantMessage("x", error_message=payload, stop_reason=StopReason.ERROR),
    )
    end = session.leaf
    for entry in (
        CustomMessageEntry(custom_type=payload, content=payload),
        CompactionEntry(summary=payload),
    ):
        session.storage.append_entry(entry)
    session.move_to(end)
    session.storage.append_entry(BranchSummaryEntry(summary=payload))
    say(session, UserMessage(payload))
    session.label(first.id, payload)
    session.rename(payload)
    return session


@pytest.mark.parametrize("branches", ["path", "all"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_page_runs_nothing_and_loads_nothing(tmp_path, payload, branches):
    page = Page(hostile(tmp_path, payload).export(branches=branches))

    assert not {"script", "iframe", "svg", "object", "embed", "form", "link"} & set(page.tags)
    assert page.tags.count("style") == 1
    assert page.handlers == page.sources == []
    assert all(link.startswith(("#", "https://evil.example/?q=1")) for link in page.links)
    assert len(set(page.ids)) == len(page.ids)
    assert {link[1:] for link in page.links if link.startswith("#")} <= set(page.ids)


@pytest.mark.parametrize("branches", ["path", "all"])
@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_host_that_renders_the_markdown_runs_and_loads_nothing(tmp_path, payload, branches):
    text = hostile(tmp_path, payload).export(format="md", branches=branches)

    page = Page(MarkdownIt("commonmark", {"html": True}).enable("table").render(text))

    assert not {"script", "iframe", "svg", "style", "img", "title", "section"} & set(page.tags)
    assert page.handlers == page.sources == []
    assert page.tags.count("details") == text.count("<details><summary>")


@settings(max_examples=300)
@given(st.text(alphabet="`~ \n\t->|*#1.ab\\$[]:", max_size=40))
def test_no_text_takes_in_what_stands_below_it(text):
    parser = MarkdownIt("commonmark", {"html": True}).enable("table")

    tokens = parser.parse(closed_markdown(text) + "\n\nbelow")

    assert [(token.level, token.content) for token in tokens[-3:-1]] == [(0, ""), (1, "below")]


@pytest.mark.parametrize("format", FORMATS)
def test_all_of_an_exchange_is_there_in_order(tmp_path, format):
    session = new(tmp_path)
    image = base64.b64encode(b"\x89PNG" * 100_000).decode()
    call = AgentToolCall("1", "price_of", {"country": "Portugal"})
    saved = session.storage.blobs.save_output("row\n" * 90_000 + "the end of it")
    result = ToolResultMessage(
        "1",
        "price_of",
        [TextContent("row …"), ImageContent(image, "image/png")],
        details={"summary": "14 rows", "output": "printed words", "full": saved.reference},
    )
    prompt, *_ = say(
        session,
        UserMessage("which column?"),
        AssistantMessage([ReasoningContent("a thought"), TextContent("calling"), call]),
        result,
        AssistantMessage("**the region**", model="m-1", usage=Usage(812, 96)),
        UserMessage("go on"),
        AssistantMessage("half", stop_reason=StopReason.ABORTED),
    )
    session.label(prompt.id, "baseline")

    text = session.export(format=format)

    strong = "<strong>the region</strong>" if format == "html" else "**the region**"
    quote = "&quot;"
    expected = [
        *("★ baseline", "which column?", "a thought", "calling"),
        *(f"price_of(country={quote}Portugal{quote}) → 14 rows", 'country = "Portugal"'),
        *("printed words", "row …", "the end of it", f"data:image/png;base64,{image}"),
        *(strong, "812 in", "go on", "half", "stopped"),
    ]
    if format == "html":
        expected[5] = "country = &quot;Portugal&quot;"
    else:
        expected[-4] = "812 in"
    positions = [text.find(words) for words in expected]
    assert -1 not in positions, expected[positions.index(-1)]
    assert positions == sorted(positions)


@pytest.mark.parametrize("format", FORMATS)
def test_what_is_missing_beside_the_session_is_said(tmp_path, format):
    session = new(tmp_path)
    say(
        session, UserMessage([ImageContent(base64.b64encode(b"x" * 300_000).decode(), "image/png")])
    )
    saved = session.storage.blobs.save_output("all of it")
    say(session, ToolResultMessage("1", "f", "a part", details={"full": saved.reference}))
    for path in (tmp_path / "s.yiem.files").iterdir():
        path.unlink()

    text = session.export(format=format)

    assert "image/png, 300 kB: missing; s.yiem.files/" in text.replace("\\", "")
    assert f"missing: {saved.sha256}.txt" in text


@pytest.mark.parametrize("format", FORMATS)
def test_each_fork_leads_to_its_branches_and_back(tmp_path, format):
    session = new(tmp_path)
    say(session, UserMessage("one"), AssistantMessage("answer"))
    fork = session.leaf
    say(session, UserMessage("westward"))
    session.move_to(fork)
    say(session, UserMessage("right"))
    inner = session.leaf
    say(session, UserMessage("right a"))
    session.move_to(inner)
    say(session, UserMessage("right b"))

    alone = session.export(format=format)
    text = session.export(format=format, branches="all")

    assert "westward" not in alone
    assert "right a" not in alone
    assert "right b" in alone
    page = Page(MarkdownIt("commonmark", {"html": True}).render(text) if format == "md" else text)
    targets = [link for link in page.links if link.startswith("#")]
    assert {link[1:] for link in targets} == set(page.ids)
    assert len(page.ids) == 5
    # The branch one is on comes first.
    body = text[text.index("It goes on") :]
    assert body.index("right b") < body.index("right a") < body.rindex("westward")
    assert body.count("(current)") == 2


@pytest.mark.parametrize("format", FORMATS)
def test_each_call_has_its_own_result_though_the_ids_are_used_again(tmp_path, format):
    session = new(tmp_path)
    for number in range(3):
        call = AgentToolCall("call_0", f"tool{number}", {})
        say(session, AssistantMessage([call]), ToolResultMessage("call_0", "t", f"given {number}"))
    image = ImageContent(base64.b64encode(b"x").decode(), "image/png")
    say(session, AssistantMessage([image]), ToolResultMessage("call_0", "nobody", "asked for it"))

    text = session.export(format=format)

    order = ["tool0", "given 0", "tool1", "given 1", "tool2", "given 2", "nobody", "asked for it"]
    positions = [text.index(words) for words in order]
    assert positions == sorted(positions)
    assert all(text.count(words) == 1 for words in order)


def test_headings_of_answers_stand_below_the_prompt_they_answer(tmp_path):
    session = new(tmp_path)
    say(session, UserMessage("a"), AssistantMessage("# One\n\n###### Six\n\n`<h1>`"))
    end = session.leaf
    say(session, UserMessage("b"))
    session.move_to(end)
    say(session, UserMessage("c"), AssistantMessage("# Under\n"))

    levels = [
        tag for tag in Page(session.export(branches="all")).tags if tag[0] == "h" and len(tag) == 2
    ]

    assert [tag for tag in levels if tag != "hr"] == [
        *("h1", "h2", "h3", "h6"),
        *("h2", "h3", "h4", "h2", "h3"),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_no_key_is_in_it(tmp_path, format):
    session = new(tmp_path)
    key = "sk-" + "a1B2" * 8
    call = AgentToolCall("1", "f", {"token": [{"deep": key}], key: 1})
    say(
        session,
        UserMessage(key),
        AssistantMessage([ReasoningContent(key), TextContent(key), call], error_message=key),
        ToolResultMessage("1", "f", key, details={"output": key, "summary": key}),
    )
    session.rename(key)
    session.label(session.leaf, key)

    assert key not in session.export(format=format, branches="all")


@pytest.mark.parametrize("format", FORMATS)
def test_an_empty_session_and_one_without_words(tmp_path, format):
    session = new(tmp_path)
    assert "Nothing was said." in session.export(format=format, branches="all")
    say(session, UserMessage([]), AssistantMessage([AgentToolCall("1", "f", {"a": _deep(400)})]))
    assert "f(" in session.export(format=format)


@pytest.mark.parametrize("format", FORMATS)
def test_calls_that_are_cut_off_or_nested_beyond_measure_are_shown(format):
    cut = AgentToolCall("1", "f", raw_arguments='{"a": "half', incomplete=True)
    deep = AgentToolCall("2", "g", {"a": _deep(3_000)})
    from_other = [{"type": "text", "text": "of another program"}, {"type": "image"}]
    entry = {"type": "message", "message": {"role": "custom", "content": from_other}}
    message = AssistantMessage([cut, deep, TextContent("words")])
    tree = SessionTree.of(
        [
            MessageEntry(id="a", message=message),
            MessageEntry.model_validate(entry | {"id": "b", "parentId": "a"}),
        ]
    )

    text = export(tree, "b", format=format)

    assert "(cut off)" in text
    assert "nested too deep to be shown" in text
    assert text.count("■") == 2


def _deep(levels):
    value = "x"
    for _ in range(levels):
        value = [value]
    return value


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


@settings(max_examples=100, deadline=None)
@given(
    role=st.sampled_from(["user", "assistant", "toolResult", "custom", "bashExecution", "x"]),
    fields=st.dictionaries(
        st.sampled_from(
            ["content", "details", "output", "summary", "usage", "toolCallId", "model"]
        ),
        ODD,
    ),
)
def test_no_message_of_another_program_makes_an_export_raise(tmp_path_factory, role, fields):
    session = new(tmp_path_factory.mktemp("odd"))
    line = {"type": "message", "message": {"role": role, **fields}}
    path = session.storage.path

    entry = UnknownEntry.model_validate({**line, "id": "a", "parentId": None, "timestamp": ""})
    with path.open("ab") as file:
        file.write(dump_line(entry))
    with reading(path) as seen:
        for format in FORMATS:
            assert export(seen.tree, "a", format=format, branches="all")
