"""``%%yiem`` and ``%yiem``: what is typed in a notebook.

Only IPython is imported here; pydantic, the agent and the rest come with the first prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from yiem_nb.errors import CommandError, ErrorCode

if TYPE_CHECKING:
    from yiem_nb.messages import AssistantMessage
    from yiem_nb.providers import ScriptedProvider

__all__ = ["ask", "chat", "load_ipython_extension", "prompt", "unload_ipython_extension", "use"]

_NAME = "YiemMagics"
T = TypeVar("T")


def load_ipython_extension(shell: Any) -> None:
    """Register the magics, and bind ``yiem`` where that name is free."""
    import yiem_nb
    from yiem_nb.magics.commands import YiemMagics

    if _NAME in shell.magics_manager.registry:
        return
    magics = YiemMagics(shell=shell)
    shell.register_magics(magics)
    # `%config` finds what is listed here.
    if magics not in shell.configurables:
        shell.configurables.append(magics)
    shell.user_ns.setdefault("yiem", yiem_nb)


def unload_ipython_extension(shell: Any) -> None:
    """Stop what runs, finish writing, and take the magics away."""
    magics = shell.magics_manager.registry.pop(_NAME, None)
    if magics is None:
        return
    magics.close()
    for kind in shell.magics_manager.magics.values():
        kind.pop("yiem", None)
    if magics in shell.configurables:
        shell.configurables.remove(magics)


def _magics() -> Any:
    from IPython.core.getipython import get_ipython

    shell = get_ipython()
    magics = shell.magics_manager.registry.get(_NAME) if shell is not None else None
    if magics is None:
        raise CommandError(
            "The extension is not loaded.",
            hint="%load_ext yiem_nb",
            code=ErrorCode.KERNEL_UNAVAILABLE,
        )
    return magics


def use(provider: ScriptedProvider | None) -> None:
    """Let a `ScriptedProvider` answer the prompts of this notebook; ``None`` ends that."""
    _magics().workspace.use(provider)


def chat() -> None:
    """Show the chat panel in this cell."""
    _magics().chat()


@overload
def ask(text: str) -> AssistantMessage: ...
@overload
def ask(text: str, output_type: type[T]) -> T: ...
def ask(text: str, output_type: type[Any] | None = None) -> Any:
    """Ask from a cell as ``%%yiem`` does, and return the answer.

    Parameters
    ----------
    text
        The prompt.
    output_type
        A pydantic model or other type that the answer must be; it is returned then.
    """
    return _magics().workspace.ask(text, output_type=output_type)


@overload
async def prompt(text: str) -> AssistantMessage: ...
@overload
async def prompt(text: str, output_type: type[T]) -> T: ...
async def prompt(text: str, output_type: type[Any] | None = None) -> Any:
    """Ask from a cell that awaits, and return the answer, or the `output_type` that it is."""
    return await _magics().workspace.ask_async(text, output_type=output_type)
