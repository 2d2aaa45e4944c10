"""A session in a git repository: said once, when its file is made (reliability T18).

Nothing is edited for anybody: the sentence holds the command that does it.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from pathlib import Path

__all__ = ["git_notice"]


def git_notice(session: Path) -> str | None:
    """Say that a new session would be committed with everything around it.

    Returns
    -------
    str or None
        ``None`` outside of a repository, and where its owner has decided: the file is ignored, or
        has attributes.
    """
    session = session.absolute()
    root = next((above for above in session.parents if (above / ".git").exists()), None)
    if root is None or any(_names(rule, session, root) for rule in _rules(session, root)):
        return None
    return (
        f"{session.name} lies in a git repository and holds all that is said here; to keep"
        " sessions out of it: echo '*.yiem.*' >> .gitignore"
    )


def _rules(session: Path, root: Path) -> Iterator[str]:
    """Read the patterns that git would, from the root down to the session's folder."""
    folders = [above for above in session.parents if above == root or root in above.parents]
    files = [root / ".git" / "info" / "exclude"]
    files += [folder / name for folder in folders for name in (".gitignore", ".gitattributes")]
    for file in files:
        try:
            text = file.read_text("utf-8", "replace")
        except OSError:
            continue
        for line in text.splitlines():
            words = line.split()
            # Attributes of all files are no word about sessions; ignoring all files is.
            everything = file.name == ".gitattributes" and words[:1] in (["*"], ["**"])
            if words and not words[0].startswith(("#", "!")) and not everything:
                yield words[0]


def _names(rule: str, session: Path, root: Path) -> bool:
    """Whether a pattern is about the file, or about a folder that it lies in."""
    pattern = rule.strip("/")
    path = session.relative_to(root)
    parts = [*path.parts, *(str(above) for above in path.parents), str(path)]
    return any(fnmatch.fnmatch(part, pattern) for part in parts)
