"""Keys at the prompt: asked for without an echo, shown by their place, never by themselves."""

from __future__ import annotations

import getpass
from collections.abc import Callable
from pathlib import Path
from typing import Any

from yiem_nb.errors import ErrorCode, ProviderError
from yiem_nb.kernel import compat
from yiem_nb.providers.catalogue import CLOUDS
from yiem_nb.providers.keys import check_variable_name
from yiem_nb.providers.vault import allow_dotenv, find_key, forget_key, keep_key

__all__ = ["KeyDesk"]


class KeyDesk:
    """What ``%yiem key`` does.

    Parameters
    ----------
    shell
        IPython's; where nobody sits in front of it nothing is asked.
    ask
        Asks for a text that is not shown.
    """

    def __init__(self, shell: Any, ask: Callable[[str], str] = getpass.getpass) -> None:
        self._shell = shell
        self._ask = ask

    def set(self, what: str) -> str:
        """Ask for the key of a provider, and keep it.

        Raises
        ------
        ProviderError
            Nobody can be asked, nothing was typed, or it cannot be a key; nothing is kept.
        """
        name = _variable(what)
        if compat.is_headless(self._shell):
            raise ProviderError(
                "Nobody can be asked for a key here.",
                hint=f"Set {name} in the environment of the kernel.",
                code=ErrorCode.PROVIDER_AUTH,
            )
        value = self._ask(f"{name}: ")
        if not value.strip():
            return "Nothing was typed; nothing was kept."
        return f"{name} is kept in {keep_key(name, value)}."

    def show(self, what: str) -> str:
        """Say where a key is, or which there are: the place and its last four characters."""
        names = [_variable(what)] if what else [cloud.key_name for cloud in CLOUDS.values()]
        lines = []
        for name in names:
            found = find_key(name)
            if found is not None:
                lines.append(f"{found.secret} · from {found.source}")
            elif what:
                lines.append(f"{name} is nowhere; %yiem key set {what} asks for it.")
        return "\n".join(lines) or "No key was found; %yiem key set PROVIDER asks for one."

    def forget(self, what: str) -> str:
        """Forget a key that was kept."""
        name = _variable(what)
        gone = forget_key(name)
        found = find_key(name)
        still = f" It is still in {found.source}." if found is not None else ""
        said = f"{name} was removed from {' and '.join(gone)}." if gone else f"{name} was not kept."
        return said + still

    def dotenv(self, what: str) -> str:
        """Let keys be read from a file of the project."""
        return f"Keys may be read from {allow_dotenv(Path(what))} from now on."


def _variable(what: str) -> str:
    """Return the variable of a provider's key, or the name of a variable itself."""
    cloud = CLOUDS.get(what.lower())
    return cloud.key_name if cloud is not None else check_variable_name(what)
