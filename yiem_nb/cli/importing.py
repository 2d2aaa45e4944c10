"""``yiem sessions import``: a session of ours with all that another program's file holds.

The new session is the user's own, so that a kernel goes on in it without a question. What it holds
was written elsewhere all the same, unless the ledger knows the file it came from.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from yiem_nb.cli.terminal import say
from yiem_nb.errors import SessionError
from yiem_nb.kernel.notebook import SUFFIX
from yiem_nb.models import Limits
from yiem_nb.session.foreign import mark_foreign
from yiem_nb.session.ledger import Ledger, LedgerLine, ledger_path
from yiem_nb.session.reading import reading
from yiem_nb.session.session import Session
from yiem_nb.session.storage import JsonlSessionStorage

__all__ = ["import_session"]


def import_session(arguments: argparse.Namespace) -> int:
    """Copy every entry and every file beside it; nothing is changed in the file itself."""
    with reading(arguments.file) as found:
        for notice in found.notices:
            say(f"! {notice}")
        source = found.path
    unlimited = Limits(reads_per_second=None, writes_per_second=None)
    name = source.name.removesuffix(SUFFIX).removesuffix(".jsonl")
    out: Path = arguments.output or Path(f"{name}{SUFFIX}")
    with JsonlSessionStorage.open(source, limits=unlimited) as storage:
        session = Session(storage).fork(out, everything=True)
        known = storage.get_metadata().id
    ledger = Ledger(ledger_path())
    with session.storage as copy:
        count = len(copy.tree)
        if known not in ledger:
            mark_foreign(copy)
        problem = copy.problem
    if problem is not None:
        out.unlink(missing_ok=True)
        raise SessionError(f"{source.name} cannot be imported, {problem}; nothing is left of it.")
    if not ledger.add(LedgerLine(copy.get_metadata().id, str(out.absolute()))):
        say(f"! {ledger.path} cannot be written; a kernel asks before it goes on in this session")
    say(f"{out} · {count:,} entries")
    return 0
