"""Keys: read when a request is sent, shown to nobody.

Settings hold the *name* of an environment variable. Its value is read at the last moment, wrapped, and
known to `redact`, so that no error, log or session can carry it.
"""

from __future__ import annotations

import re
from typing import NoReturn

from yiem_nb.errors import ErrorCode, ProviderError, keep_secret

__all__ = ["Secret", "check_key", "check_variable_name"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A provider's prefix, what no name may hold, or a long run of letters and digits in no order.
_LOOKS_LIKE_A_KEY = re.compile(
    r"^(sk-|sk_|gsk_|hf_|AIza|xai-|ghp_|key-)|[^A-Za-z0-9_]|^[A-Fa-f0-9]{20,}$"
    r"|^(?=.*[0-9])(?=.*[a-z])[A-Za-z0-9]{20,}$"
)
_KEY = re.compile(r"[!-~]+")


class Secret:
    """A value that does not show itself: not printed, not pickled, not copied."""

    __slots__ = ("_value", "name")

    def __init__(self, value: str, name: str) -> None:
        self._value = value
        self.name = name
        keep_secret(value, name)

    def reveal(self) -> str:
        """Return the value; only what writes it into a request calls this."""
        return self._value

    def __repr__(self) -> str:
        tail = self._value[-4:] if len(self._value) >= 12 else ""
        return f"<secret {self.name} …{tail}>" if tail else f"<secret {self.name}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __reduce__(self) -> NoReturn:
        # `copy` and `deepcopy` come here, too.
        raise TypeError("a secret cannot be copied or pickled")


def check_variable_name(name: str) -> str:
    """Return `name` if it may name a variable; refuse what looks like a key itself.

    Raises
    ------
    ProviderError
        With the remedy; the value is not repeated.
    """
    if name and (_LOOKS_LIKE_A_KEY.search(name) or not _VARIABLE.fullmatch(name)):
        keep_secret(name, "a key")
        raise ProviderError(
            "api_key_env wants the name of an environment variable, and this looks like a key itself.",
            hint='Put the key into the environment and its name here, e.g. api_key_env = "MY_KEY"; '
            "clear this cell, and replace the key if the notebook was shared.",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    return name


def check_key(value: str, name: str) -> str:
    """Return `value` if it can be a key.

    Raises
    ------
    ProviderError
        It has a line end, a blank, a quote or a letter beyond ASCII, which no key has.
    """
    if not _KEY.fullmatch(value) or "'" in value or '"' in value:
        keep_secret(value, name)
        raise ProviderError(
            f"The key in {name} has a blank, a line end, a quote or an odd letter in it.",
            hint=f"Set {name} again, without quotes and without a trailing line end.",
            code=ErrorCode.PROVIDER_CONFIG,
        )
    return value
