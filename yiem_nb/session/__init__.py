"""Sessions: the tree of a conversation and the file it is kept in (SPEC-4.1 to SPEC-4.3)."""

from yiem_nb.session.blobs import Blob, BlobStore
from yiem_nb.session.check import SessionCheck, check_session
from yiem_nb.session.context import SessionContext, build_context
from yiem_nb.session.entries import (
    ActiveToolsChangeEntry,
    BranchSummaryEntry,
    CompactionEntry,
    ContextEditEntry,
    CustomEntry,
    CustomMessageEntry,
    LabelEntry,
    LeafEntry,
    MessageEntry,
    ModelChangeEntry,
    OtherMessage,
    Replacement,
    SessionHeader,
    SessionInfoEntry,
    SessionTreeEntry,
    ThinkingLevelChangeEntry,
    UnknownEntry,
    UsageEntry,
)
from yiem_nb.session.ledger import Ledger, LedgerLine, ledger_path
from yiem_nb.session.lines import dump_line, parse_line
from yiem_nb.session.lock import Owner, SessionLock, lock_folder
from yiem_nb.session.place import How, Places, Plan, plan_place, stale_cells
from yiem_nb.session.session import Comparison, Session
from yiem_nb.session.stats import SessionStats
from yiem_nb.session.storage import JsonlSessionStorage, SessionMetadata, SessionOptions
from yiem_nb.session.tree import SessionTree

__all__ = [
    "ActiveToolsChangeEntry",
    "Blob",
    "BlobStore",
    "BranchSummaryEntry",
    "CompactionEntry",
    "Comparison",
    "ContextEditEntry",
    "CustomEntry",
    "CustomMessageEntry",
    "How",
    "JsonlSessionStorage",
    "LabelEntry",
    "LeafEntry",
    "Ledger",
    "LedgerLine",
    "MessageEntry",
    "ModelChangeEntry",
    "OtherMessage",
    "Owner",
    "Places",
    "Plan",
    "Replacement",
    "Session",
    "SessionCheck",
    "SessionContext",
    "SessionHeader",
    "SessionInfoEntry",
    "SessionLock",
    "SessionMetadata",
    "SessionOptions",
    "SessionStats",
    "SessionTree",
    "SessionTreeEntry",
    "ThinkingLevelChangeEntry",
    "UnknownEntry",
    "UsageEntry",
    "build_context",
    "check_session",
    "dump_line",
    "ledger_path",
    "lock_folder",
    "parse_line",
    "plan_place",
    "stale_cells",
]
