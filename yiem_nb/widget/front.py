"""The front end of a kernel: its engine, its hub, and who is asked."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from yiem_nb.kernel import compat
from yiem_nb.kernel.approval import PlainApprover
from yiem_nb.kernel.front import PlainView
from yiem_nb.kernel.view import Bundle, Publish, View, shell_publisher
from yiem_nb.tools import ApprovalDesk, ApprovalRequest, Approver, Decision
from yiem_nb.widget.controls import Controls
from yiem_nb.widget.engine import engine_class, turn_class
from yiem_nb.widget.hub import Hub
from yiem_nb.widget.live import LiveView, bundle_of
from yiem_nb.widget.protocol import Packet
from yiem_nb.widget.record import TurnRecord, past_turns

if TYPE_CHECKING:
    from yiem_nb.kernel.workspace import Workspace

__all__ = ["Front"]


class Front:
    """Live views in the pages of a kernel; the engine is made with the first of them.

    Parameters
    ----------
    workspace
        The kernel's conversation.
    choose_model
        Makes a model the typed choice.
    """

    def __init__(self, workspace: Workspace, choose_model: Callable[[str], object]) -> None:
        self._workspace = workspace
        self._desk = ApprovalDesk()
        self._controls = Controls(workspace, self._desk, choose_model)
        self._hub: Hub | None = None
        self._engine: Any = None
        self._displayed = compat.count_displays(workspace.shell)

    @property
    def engine(self) -> Any:
        """The engine; a display of it is the chat panel."""
        if self._engine is None:
            self._open()
        return self._engine

    def _open(self) -> None:
        loop = self._workspace.bridge.thread.loop
        engine = engine_class()(engine_id=uuid.uuid4().hex[:12])
        self._engine = engine
        self._hub = self._controls.hub = hub = Hub(self._send, self._controls, loop)
        hub.remember(past_turns(self._workspace.open().agent.state.messages))

        def take(content: object) -> None:
            loop.call_soon_threadsafe(hub.receive, content)

        def tapped(data: Any) -> None:
            # What ipywidgets would have made of it: {"method": "custom", "content": …}.
            if isinstance(data, dict) and data.get("method") == "custom":
                take(data.get("content"))

        engine.on_msg(lambda *given: take(given[1]))
        self._workspace.tap.open(engine.comm.comm_id, tapped)

    def _send(self, packet: Packet) -> None:
        self._engine.send(packet)

    def view(
        self, publish: Publish, plain: PlainView, *, cell: str | None, label: str, waiting: str
    ) -> tuple[View, Approver]:
        """Return the live view of a cell's turn; it is plain until a page says that it is there."""
        engine = self.engine
        assert self._hub is not None
        record = self._hub.begin("cell", cell, label, waiting)

        def widget(record: TurnRecord, start: int) -> _Shown:
            return _Shown(engine.model_id, record, start)

        view = LiveView(self._hub, record, publish, plain, widget, self._displayed)
        return view, _Asked(self._hub, self._desk)

    def show_panel(self) -> None:
        """Display the chat panel in the cell that runs: in words first, until a page can show it."""
        publish, display_id = shell_publisher(self._workspace.shell), uuid.uuid4().hex
        bundle = bundle_of(self.engine)
        assert self._hub is not None
        if self._hub.is_live:
            publish(bundle, display_id, update=False)
            return
        words = {kind: bundle[kind] for kind in ("text/plain", "text/markdown")}
        publish(words, display_id, update=False)
        self._hub.when_live(lambda: publish(bundle, display_id, update=True))

    def stop(self) -> None:
        """Close the engine; pages keep what they show."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._workspace.tap.close(engine.comm.comm_id)
            engine.close()


class _Shown:
    """A turn's widget in a cell."""

    def __init__(self, engine: str, record: TurnRecord, start: int) -> None:
        self._widget = turn_class()(
            engine_id=engine, turn_id=record.id, start=start, title=f"{record.label} · running"
        )

    def bundle(self) -> Bundle:
        """Return what is displayed."""
        return bundle_of(self._widget)

    def close(self) -> None:
        """It is shown nowhere any more."""
        self._widget.layout.close()
        self._widget.close()


class _Asked:
    """Asks in the page, where one shows turns live, else in the cell."""

    def __init__(self, hub: Hub, desk: ApprovalDesk) -> None:
        self._hub = hub
        self._desk = desk
        self._plain = PlainApprover()

    async def __call__(self, request: ApprovalRequest) -> Decision:
        """Ask where the person looks."""
        return await (self._desk if self._hub.is_live else self._plain)(request)
