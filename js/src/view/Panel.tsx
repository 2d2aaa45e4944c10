// The chat panel: who answers, what was said, and the box to say more.
import { useSignal, useSignalEffect } from "@preact/signals";
import { useCallback, useEffect, useRef } from "preact/hooks";
import { Composer } from "./Composer";
import { Header } from "./Header";
import { HOLDS_KEYS } from "./keys";
import type { Engine } from "./mount";
import { OtherVersion, TurnView } from "./Turn";

/** So near to the end the log follows what arrives. */
const NEAR = 48;

export function Panel({ engine }: { engine: Engine }) {
  const { store } = engine;
  const root = useRef<HTMLDivElement>(null);
  const cycle = (event: KeyboardEvent) => {
    if (event.key !== "F6") return;
    event.preventDefault();
    const stops = [...root.current!.querySelectorAll<HTMLElement>("[data-stop]")];
    const at = stops.findIndex((stop) => stop.contains(document.activeElement));
    stops[(at + 1) % stops.length]?.focus();
  };
  const link = store.link.value;
  return (
    <div class="yiem-chat" ref={root} onKeyDown={cycle} data-testid="yiem-conn" data-state={link}>
      <Header engine={engine} />
      {link === "other" ? <OtherVersion /> : <Log engine={engine} />}
      {link === "gone" && (
        <p class="yiem-muted yiem-notice" role="status">
          The kernel that this panel belongs to has ended. Run %yiem chat again to go on; what was
          said is in the session.
        </p>
      )}
      {store.session.value.notice && (
        <p class="yiem-muted yiem-notice">{store.session.value.notice}</p>
      )}
      {link !== "gone" && <Composer engine={engine} />}
    </div>
  );
}

function Log({ engine }: { engine: Engine }) {
  const { store } = engine;
  const log = useRef<HTMLDivElement>(null);
  const pinned = useRef(true);
  const more = useSignal(false);
  const follow = useCallback(() => {
    const place = log.current;
    if (!place) return;
    if (pinned.current) place.scrollTop = place.scrollHeight;
    else if (place.scrollHeight - place.scrollTop - place.clientHeight > NEAR) more.value = true;
  }, []);
  useSignalEffect(() => {
    for (const turn of store.turns.value) turn.version.value;
    requestAnimationFrame(follow);
  });
  useEffect(() => {
    const place = log.current!;
    const onScroll = () => {
      const near = place.scrollHeight - place.scrollTop - place.clientHeight <= NEAR;
      if (near) {
        pinned.current = true;
        more.value = false;
      }
    };
    const unpin = (event: Event) => {
      const key = (event as KeyboardEvent).key;
      const up =
        (event as WheelEvent).deltaY < 0 ||
        event.type === "touchmove" ||
        /^(?:PageUp|ArrowUp|Home)$/.test(key ?? "");
      if (up && place.scrollHeight > place.clientHeight) pinned.current = false;
    };
    const onSelect = () => {
      const selection = document.getSelection();
      if (selection && !selection.isCollapsed && place.contains(selection.anchorNode))
        pinned.current = false;
    };
    place.addEventListener("scroll", onScroll, { passive: true });
    for (const kind of ["wheel", "touchmove", "keydown"])
      place.addEventListener(kind, unpin, { passive: true });
    document.addEventListener("selectionchange", onSelect);
    return () => document.removeEventListener("selectionchange", onSelect);
  }, []);
  const turns = store.turns.value;
  const toEnd = () => {
    pinned.current = true;
    more.value = false;
    follow();
  };
  const earlier = () => {
    void engine.link.request("earlier", { before: turns[0]?.id ?? "" });
  };
  return (
    <div class="yiem-log-frame">
      <div
        class="yiem-log"
        ref={log}
        role="log"
        aria-live="off"
        aria-label="Conversation"
        tabIndex={0}
        data-stop
        data-testid="yiem-log"
        {...HOLDS_KEYS}
      >
        {store.earlier.value > 0 && (
          <button type="button" class="yiem-quiet" onClick={earlier} {...HOLDS_KEYS}>
            {store.earlier.value} earlier
          </button>
        )}
        {turns.length === 0 && (
          <p class="yiem-muted">
            {store.link.value === "here"
              ? "Nothing was said yet. The model sees this notebook's cells and may call its tools."
              : "Connecting to the kernel …"}
          </p>
        )}
        {turns.map((turn) => (
          <TurnView key={turn.id} turn={turn} engine={engine} onDraw={follow} />
        ))}
      </div>
      {more.value && (
        <button type="button" class="yiem-button yiem-more" onClick={toEnd} {...HOLDS_KEYS}>
          New output ↓
        </button>
      )}
    </div>
  );
}
