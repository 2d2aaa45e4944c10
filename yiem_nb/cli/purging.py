"""``yiem sessions purge``: take something out of a session, after a yes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from yiem_nb.cli.terminal import ask, say, show_table, working
from yiem_nb.errors import CommandError, SessionError
from yiem_nb.session.lock import lock_folder
from yiem_nb.session.purge import Purge, carry_out, plan_purge
from yiem_nb.session.traces import in_notebooks, in_sessions, matcher
from yiem_nb.session.transcript import moment

__all__ = ["purge_session"]


def purge_session(arguments: argparse.Namespace) -> int:
    """Say what is taken out, ask, do it, and say where else it is."""
    if arguments.regex and arguments.matching is None:
        raise CommandError("--regex says how --matching is meant.", hint="--matching TEXT --regex")
    matches = None
    if arguments.matching is not None:
        matches = matcher(arguments.matching, regex=arguments.regex)
    with working("looking for it"):
        plan = plan_purge(arguments.file, entries=arguments.entry or (), matches=matches)
    if plan:
        _tell(plan)
        if not arguments.yes and not _agreed():
            say("Nothing is changed.")
            return 1
        left = carry_out(plan, locks=lock_folder())
        if left:
            names = ", ".join(str(path) for path in left)
            raise SessionError(
                f"The session is purged, but {names} cannot be removed.", hint="Purge it again."
            )
        say("It is taken out.")
    else:
        say(f"There is nothing of it in {plan.path.name}.")
    for place in _elsewhere(plan):
        say(f"! {place}")
    return 0


def _tell(plan: Purge) -> None:
    say(f"From {plan.path} is taken out, for good:")
    show_table(
        ("", "", "", ""),
        ((one.type, one.id, moment(one.timestamp), f"{one.size:,} bytes") for one in plan.entries),
        right=(3,),
    )
    if plan.elsewhere:
        places = "1 place" if plan.elsewhere == 1 else f"{plan.elsewhere} places"
        say(f"{places} outside of entries: damaged lines, the header")
    for path in plan.files:
        say(f"{path.parent.name}/{path.name}")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        raise CommandError(
            "A purge asks first, and there is nobody to answer.", hint="Say --yes with the command."
        )
    return ask("It cannot be brought back. Go on?")


def _elsewhere(plan: Purge) -> Iterator[str]:
    """Say where else it is; none of that is touched."""
    folder = plan.path.parent
    for notebook in in_notebooks(folder, plan.words):
        yield f"it is still in {notebook}"
    for path in in_sessions(plan.path, plan.words):
        yield f"it is still in {path.name} → yiem sessions purge {path.name}"
    if any((above / ".git").exists() for above in (folder, *folder.parents)):
        yield "this folder is in git, whose history keeps what was committed"
