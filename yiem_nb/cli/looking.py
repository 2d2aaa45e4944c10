"""What ``yiem sessions`` shows of session files; none of it changes a byte."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from yiem_nb.cli.terminal import say, show_table, steps, working
from yiem_nb.errors import SessionNotFoundError, YiemError
from yiem_nb.kernel.notebook import SUFFIX, stray_session_path
from yiem_nb.messages import UserMessage
from yiem_nb.render.text import one_line
from yiem_nb.render.view import money
from yiem_nb.session.blobs import size_words
from yiem_nb.session.check import check_session as checked
from yiem_nb.session.drawing import tree_rows
from yiem_nb.session.entries import (
    MessageEntry,
)
from yiem_nb.session.outline import outline
from yiem_nb.session.reading import Reading, reading
from yiem_nb.session.tree import SessionTree

__all__ = ["check_session", "count_session", "list_sessions", "show_session"]

#: How a file that may be a session begins; pi's own are told by this too.
_BEGINNING = b'{"type":"session"'


# --- list ----------------------------------------------------------------------------------


def list_sessions(arguments: argparse.Namespace) -> int:
    """List the sessions of a folder, the newest first."""
    given = [arguments.folder] if arguments.folder is not None else [Path()]
    paths = [path for folder in given for path in _sessions_in(folder)]
    stray = stray_session_path().parent
    if arguments.folder is None and stray.is_dir():
        paths += _sessions_in(stray)
    paths.sort(key=_changed, reverse=True)
    rows = [_summary(path) for path in steps(paths, "reading")]
    if not rows:
        where = arguments.folder if arguments.folder is not None else Path.cwd()
        say(f"There are no sessions in {where}.")
        return 0
    head = ("file", "about", "messages", "cost", "size", "changed", "")
    show_table(head, rows, right=(2, 3, 4))
    return 0


def _sessions_in(folder: Path) -> list[Path]:
    try:
        found = sorted(folder.iterdir())
    except OSError as error:
        raise SessionNotFoundError(
            f"The folder {folder} cannot be listed: {(error.strerror or '').lower()}.",
            hint="yiem sessions list FOLDER",
        ) from None
    return [path for path in found if _may_be_session(path)]


def _may_be_session(path: Path) -> bool:
    if path.suffix != ".jsonl" or path.is_symlink() or not path.is_file():
        return False
    if path.name.endswith(SUFFIX):
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _summary(path: Path) -> tuple[str, ...]:
    name = one_line(_from_here(path), 80)
    changed = datetime.fromtimestamp(_changed(path)).astimezone().strftime("%Y-%m-%d %H:%M")
    try:
        with reading(path) as session:
            stats = session.index.stats()
            cost = money(stats.cost_total) if stats.cost_total else ""
            about = session.tree.name or _first_prompt(session.tree)
            note = "see yiem sessions check" if session.notices else ""
            size = size_words(session.size)
            return name, one_line(about, 50), str(stats.message_count), cost, size, changed, note
    except YiemError as error:
        # The path stands in the first column already.
        why = one_line(error.message.rpartition(": ")[2])
        return name, "", "", "", "", changed, why


def _from_here(path: Path) -> str:
    try:
        return str(path.absolute().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _first_prompt(tree: SessionTree) -> str:
    for entry_id in tree.of_type("message"):
        entry = tree.entry(entry_id)
        if isinstance(entry, MessageEntry) and isinstance(entry.message, UserMessage):
            return entry.message.text
    return ""


# --- show ----------------------------------------------------------------------------------


def show_session(arguments: argparse.Namespace) -> int:
    """Draw a session's tree."""
    with reading(arguments.file) as session:
        name = session.tree.name
        say(f"{_from_here(session.path)}" + (f" · {one_line(name)}" if name else ""))
        for notice in session.notices:
            say(f"! {notice}")
        show_table(("", "", "entry"), tree_rows(session.tree, session.tree.leaf))
    return 0


# --- check and stats -----------------------------------------------------------------------


def check_session(arguments: argparse.Namespace) -> int:
    """Say what is wrong with a file; the status is 1 where something is."""
    with working("checking"):
        check = checked(arguments.file)
    total = sum(check.types.values())
    entries = "1 entry" if total == 1 else f"{total:,} entries"
    kinds = ", ".join(f"{count:,} {kind}" for kind, count in check.types.most_common())
    say(
        f"{_from_here(check.path)} · {size_words(check.size)} · {entries}"
        + (f": {kinds}" if kinds else "")
    )
    for finding in check.findings:
        say(f"✕ {finding}")
    if not check.findings:
        say("✓ nothing is wrong with it")
    return 1 if check.findings else 0


def count_session(arguments: argparse.Namespace) -> int:
    """Count messages, branches, tokens and bytes."""
    with reading(arguments.file) as session:
        for notice in session.notices:
            say(f"! {notice}")
        stats = session.index.stats()
        ends = sum(not stretch.forks for stretch in outline(session.tree, session.tree.leaf))
        rows = [
            ("entries", f"{len(session.tree):,}"),
            ("messages", f"{stats.message_count:,}"),
            ("branches", f"{ends:,}"),
            ("labels", f"{len(session.tree.labels()):,}"),
            ("tokens sent", f"{stats.uncached_tokens:,}"),
            ("tokens from a cache", f"{stats.cached_tokens:,}"),
            ("tokens in all", f"{stats.total_tokens:,}"),
            ("cost", f"${stats.cost_total:,.4f}"),
            ("bytes", f"{session.size:,}"),
        ]
        files, size = _beside(session)
        if files:
            rows.append(("files beside it", f"{files:,} ({size:,} bytes)"))
        show_table(("", ""), rows, right=(1,))
    return 0


def _beside(session: Reading) -> tuple[int, int]:
    """Count the files of a session's own folder."""
    own = [path for path in session.blobs.files() if path.parent == session.blobs.folder]
    return len(own), sum(path.stat().st_size for path in own)
