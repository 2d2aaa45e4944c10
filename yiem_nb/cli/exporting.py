"""``yiem sessions export``: a session as one document."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from yiem_nb.cli.terminal import say, working
from yiem_nb.errors import ErrorCode, SessionError
from yiem_nb.kernel.notebook import SUFFIX
from yiem_nb.session.blobs import size_words
from yiem_nb.session.export import Format, export, facts_of
from yiem_nb.session.files import OsFiles, reason_of, write_new
from yiem_nb.session.reading import Reading, reading

__all__ = ["export_session"]

ALL = "all"
STANDARD_OUTPUT = "-"


def export_session(arguments: argparse.Namespace) -> int:
    """Write a session as HTML or Markdown; a file that is there already is left alone."""
    with reading(arguments.file) as session:
        form: Format = arguments.format or _format_of(arguments.output)
        for notice in session.notices:
            print(f"! {notice}", file=sys.stderr)
        header = session.header
        leaf = _leaf(session, arguments.branch)
        with working("writing"):
            text = export(
                session.tree,
                leaf,
                format=form,
                branches="all" if arguments.branch == ALL else "path",
                title=session.path.name,
                facts=facts_of(header.timestamp if header else "", session.index.stats()),
                read=session.blobs.read,
            )
        if arguments.output == STANDARD_OUTPUT:
            sys.stdout.write(text)
            return 0
        out = Path(arguments.output or f"{session.path.name.removesuffix(SUFFIX)}.{form}")
        _write(out, text, session.path, force=arguments.force)
    say(f"{out} · {size_words(len(text.encode()))}")
    return 0


def _format_of(output: str | None) -> Format:
    return "md" if output and output.lower().endswith((".md", ".markdown")) else "html"


def _leaf(session: Reading, branch: str | None) -> str | None:
    """Find the end of the branch that was asked for, by its entry or its label."""
    if branch is None or branch == ALL:
        return session.tree.leaf
    found = session.tree.find(branch)
    if found is not None:
        return found
    raise SessionError(
        f"There is no entry and no label {branch!r} in {session.path.name}.",
        hint=f"yiem sessions show {session.path.name}",
        code=ErrorCode.SESSION_ENTRY,
    )


def _write(out: Path, text: str, session: Path, *, force: bool) -> None:
    """Write the document for its owner alone, whole or not at all."""
    out = out.absolute()
    if os.path.lexists(out) and (not force or out.is_dir() or out.samefile(session)):
        raise SessionError(
            f"There is something at {out} already.", hint="Choose another name: -o OUT, or --force."
        )
    try:
        write_new(OsFiles(), out, text.encode("utf-8", "replace"))
    except OSError as error:
        raise SessionError(
            f"{out} cannot be written: {reason_of(error)}.", hint="Choose another place: -o OUT."
        ) from None
