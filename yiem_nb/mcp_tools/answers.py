"""From the raw result of ``tools/call`` to what the model reads (pure; SP-010)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from yiem_nb.blocks import ImageContent, TextContent
from yiem_nb.messages import AgentToolResult
from yiem_nb.tools.text import clipped, few, redacted

__all__ = ["MAX_DATA", "read_answer"]

#: How many characters of structured content, and of all images of a result together, are kept.
MAX_DATA = 1_000_000
_IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


def read_answer(raw: Mapping[str, Any]) -> AgentToolResult:
    """Return the result of a call; what no model can read becomes a sentence.

    ``isError`` is a result like another (SP-010). Structured content goes to the details, and
    to the model where there is nothing else to read.
    """
    content = raw.get("content")
    blocks = _within([_block(part) for part in content] if isinstance(content, list) else [])
    texts = [block.text for block in blocks if isinstance(block, TextContent)]
    images = [block for block in blocks if isinstance(block, ImageContent)]
    structured = raw.get("structuredContent")
    written = "" if structured is None else json.dumps(structured)
    if written and not any(text.strip() for text in texts):
        texts = [written]
    text = clipped(redacted("\n\n".join(text for text in texts if text)))
    kept = structured if len(written) <= MAX_DATA else None
    return AgentToolResult(
        [TextContent(text), *images] if text else images,
        details=None if kept is None else {"structured": redacted(kept)},
        is_error=raw.get("isError") is True,
    )


def _within(blocks: list[TextContent | ImageContent]) -> list[TextContent | ImageContent]:
    room = MAX_DATA
    for index, block in enumerate(blocks):
        if not isinstance(block, ImageContent):
            continue
        if len(block.data) > room:
            size = f"{len(block.data):,} characters"
            blocks[index] = TextContent(f"[An image of {size}, too large to be shown.]")
        else:
            room -= len(block.data)
    return blocks


def _block(part: Any) -> TextContent | ImageContent:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "text" and isinstance(part.get("text"), str):
        return TextContent(part["text"] or " ")
    if kind == "image":
        return _image(part)
    if kind == "resource" and isinstance(part.get("resource"), Mapping):
        return _resource(part["resource"])
    if kind == "resource_link":
        return TextContent(f"[A link to a resource: {part.get('name', '')} {part.get('uri', '')}]")
    if kind == "audio":
        return TextContent(f"[Audio, {few(str(part.get('mimeType')))}; it is not played.]")
    return TextContent(f"[Content of a kind that is not known: {few(str(kind))}.]")


def _image(part: Mapping[str, Any]) -> TextContent | ImageContent:
    data, mime_type = part.get("data"), part.get("mimeType")
    if not isinstance(data, str) or mime_type not in _IMAGES:
        return TextContent(f"[An image no model reads, {few(str(mime_type))}.]")
    try:
        return ImageContent(data, str(mime_type))
    except ValueError:
        return TextContent("[An image that cannot be read: its data is no Base64.]")


def _resource(resource: Mapping[str, Any]) -> TextContent:
    uri = resource.get("uri", "")
    if isinstance(resource.get("text"), str):
        return TextContent(f"[{uri}]\n{resource['text']}")
    return TextContent(f"[The resource {uri}, {few(str(resource.get('mimeType')))}, is no text.]")
