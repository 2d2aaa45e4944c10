// A turn: one line for each thing that happened, in the order it happened.
import { useComputed, useSignalEffect } from "@preact/signals";
import { Component, type ComponentChildren } from "preact";
import { useMemo, useState } from "preact/hooks";
import { type Item, shapeOf, type TextItem, type TurnShape } from "../derive";
import type { Turn } from "../store";
import { clipped, seconds, visible } from "../text";
import { Body } from "./Body";
import { Call } from "./Call";
import { useSeconds } from "./clock";
import { findCell, showCell } from "./host";
import { HOLDS_KEYS } from "./keys";
import { copy, type Engine, flash } from "./mount";
import { Picture } from "./Picture";

interface Props {
  turn: Turn;
  engine: Engine;
  from?: number;
  /** Whether the prompt is shown: in its own cell it stands above. */
  withPrompt?: boolean;
  onDraw?: () => void;
}

export function TurnView({ turn, engine, from = 0, withPrompt = true, onDraw }: Props) {
  const version = turn.version.value;
  const shape = useMemo(() => shapeOf(turn, from), [turn, from, version]);
  const items = withPrompt ? shape.items : shape.items.filter((item) => item.kind !== "user");
  return (
    <article
      class="yiem-turn"
      data-testid={`yiem-turn-${turn.id}`}
      data-state={stateOf(turn, shape)}
      aria-label="Turn"
    >
      {withPrompt && turn.cell !== null && <CellLink cell={turn.cell} engine={engine} />}
      {items.map((item) => (
        <Guarded key={item.key} item={item}>
          <Row item={item} turn={turn} engine={engine} {...(onDraw ? { onDraw } : {})} />
        </Guarded>
      ))}
      {turn.running && (
        <Running turn={turn} shape={shape} engine={engine} empty={items.length === 0} />
      )}
      {turn.stale.value && <p class="yiem-muted">some of this is still on its way</p>}
      <Announcer turn={turn} shape={shape} />
    </article>
  );
}

/** A turn in its own cell. */
export function CellTurn({ engine, id, from }: { engine: Engine; id: string; from: number }) {
  const turn = useComputed(() => engine.store.turns.value.find((each) => each.id === id));
  if (engine.store.link.value === "other") return <OtherVersion />;
  if (engine.store.link.value === "gone") {
    return <p class="yiem-muted">the kernel has ended; what had arrived is in the session</p>;
  }
  if (!turn.value) return <p class="yiem-muted">waiting for the kernel</p>;
  return <TurnView turn={turn.value} engine={engine} from={from} withPrompt={false} />;
}

export function OtherVersion() {
  return (
    <p class="yiem-error-line" role="alert">
      This page and the kernel run different versions of yiem_nb. Save, then reload the page.
    </p>
  );
}

function stateOf(turn: Turn, shape: TurnShape): string {
  if (turn.stale.value) return "stale";
  if (!shape.done) return turn.running ? "streaming" : "idle";
  const last = shape.items.at(-1)?.kind;
  if (last === "stopped") return "aborted";
  return shape.items.some((item) => item.kind === "error") ? "error" : "idle";
}

function CellLink({ cell, engine }: { cell: string; engine: Engine }) {
  const found = findCell(engine, cell);
  if (!found) return <p class="yiem-muted">from a cell</p>;
  return (
    <button
      type="button"
      class="yiem-quiet yiem-from"
      onClick={(event) => showCell(event.currentTarget, found.index)}
      {...HOLDS_KEYS}
    >
      from cell [{found.run ?? " "}]
    </button>
  );
}

function Row({
  item,
  turn,
  engine,
  onDraw,
}: {
  item: Item;
  turn: Turn;
  engine: Engine;
  onDraw?: () => void;
}) {
  switch (item.kind) {
    case "user":
      return <Prompt item={item} />;
    case "text":
      return (
        <div class="yiem-text" data-testid={`yiem-block-${turn.id}-${item.block}`}>
          <Body turn={turn} block={item.block} final={item.final} {...(onDraw ? { onDraw } : {})} />
        </div>
      );
    case "thinking":
      return <Thinking item={item} turn={turn} engine={engine} />;
    case "call":
      return <Call call={item} engine={engine} />;
    case "notice":
      return <p class="yiem-muted">{item.text}</p>;
    case "error":
      return <Failure item={item} turn={turn} engine={engine} />;
    case "stopped":
      return (
        <p class="yiem-foot">
          <span aria-hidden="true">■ </span>
          {item.text}
        </p>
      );
    case "footer":
      return <p class="yiem-foot">{visible(item.text)}</p>;
  }
}

function Prompt({ item }: { item: Extract<Item, { kind: "user" }> }) {
  const [all, setAll] = useState(false);
  const long = item.text.length > 3000;
  return (
    <div class="yiem-prompt">
      <p dir="auto">{visible(all ? item.text : clipped(item.text, 3000))}</p>
      {long && (
        <button type="button" class="yiem-quiet" onClick={() => setAll(!all)} {...HOLDS_KEYS}>
          {all ? "Show less" : "Show all"}
        </button>
      )}
      {item.images.map((image, index) => (
        <Picture key={index} image={image} alt="attached image" />
      ))}
    </div>
  );
}

function Thinking({ item, turn, engine }: { item: TextItem; turn: Turn; engine: Engine }) {
  const [open, setOpen] = useState(false);
  const live = item.final === null;
  const began = turn.events.find((event) => event.n === item.message)?.t ?? 0;
  const elapsed = useSeconds(began, engine.store.lag, live && began > 0);
  const title = live
    ? `thinking … ${began ? seconds(elapsed) : ""}`
    : `thought for ${seconds((item.took ?? 0) / 1000)}`;
  const id = `yiem-thinking-${turn.id}-${item.key}`;
  return (
    <div class="yiem-thinking" data-testid={`yiem-thinking-${turn.id}`}>
      <button
        type="button"
        class="yiem-line"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => setOpen(!open)}
        {...HOLDS_KEYS}
      >
        <span class="yiem-fold" aria-hidden="true" />
        {title}
      </button>
      <div id={id} class="yiem-inside" hidden={!open}>
        {open && <Body turn={turn} block={item.block} final={item.final} />}
      </div>
    </div>
  );
}

function Failure({
  item,
  turn,
  engine,
}: {
  item: Extract<Item, { kind: "error" }>;
  turn: Turn;
  engine: Engine;
}) {
  const again = () => {
    const first = turn.state.messages.find((message) => message.role === "user");
    const text = first?.content.map((b) => (b.type === "text" ? b.text : "")).join("") ?? "";
    void engine.link.request("prompt", { text, images: [] });
  };
  const details = item.code ? `${item.text}\n${item.code}` : item.text;
  return (
    <div class="yiem-failure" role="alert">
      <p>
        <span aria-hidden="true">✕ </span>
        {visible(item.text)}
      </p>
      <div class="yiem-buttons">
        {turn.cell === null && (
          <button type="button" class="yiem-button" onClick={again} {...HOLDS_KEYS}>
            Try again
          </button>
        )}
        <button
          type="button"
          class="yiem-quiet"
          onClick={async (event) => {
            const button = event.currentTarget;
            flash(button, (await copy(details)) ? "Copied" : "Not copied");
          }}
          {...HOLDS_KEYS}
        >
          Copy details
        </button>
      </div>
    </div>
  );
}

/** The last line of a turn that runs: for how long, and the way to stop it. */
function Running({
  turn,
  shape,
  engine,
  empty,
}: {
  turn: Turn;
  shape: TurnShape;
  engine: Engine;
  empty: boolean;
}) {
  const [stopping, setStopping] = useState(false);
  const elapsed = useSeconds(shape.began, engine.store.lag, true);
  const stop = () => {
    setStopping(true);
    void engine.link.request("stop").then((answer) => setStopping(answer.ok));
  };
  const words = stopping
    ? "stopping"
    : shape.waitsForLeave
      ? "waiting for you"
      : empty
        ? "waiting"
        : "";
  return (
    <div class="yiem-running">
      <span class="yiem-muted">
        {[empty ? visible(turn.waiting || turn.label) : "", words, seconds(elapsed)]
          .filter(Boolean)
          .join(" · ")}
      </span>
      <button
        type="button"
        class="yiem-quiet yiem-stop"
        data-testid="yiem-stop"
        onClick={stop}
        {...HOLDS_KEYS}
      >
        <span aria-hidden="true">■ </span>
        stop
      </button>
    </div>
  );
}

/** What a screen reader is told: that it began, what is asked, that it is over; not every word. */
function Announcer({ turn, shape }: { turn: Turn; shape: TurnShape }) {
  const [said, say] = useState("");
  useSignalEffect(() => {
    turn.version.value;
    const call = shape.items.find((item) => item.kind === "call" && item.state === "waiting");
    if (call?.kind === "call") say(`${call.name} needs your approval`);
    else if (shape.done) say("The answer is finished.");
    else if (turn.running) say("The answer has begun.");
  });
  return (
    <div class="yiem-hidden" role="status" aria-live={shape.waitsForLeave ? "assertive" : "polite"}>
      {turn.running || said ? said : ""}
    </div>
  );
}

/** What cannot be drawn is shown as it is; the rest of the turn stays. */
class Guarded extends Component<{ item: Item; children: ComponentChildren }, { failed: boolean }> {
  override state = { failed: false };

  static override getDerivedStateFromError() {
    return { failed: true };
  }

  override componentDidCatch(error: unknown) {
    console.error("yiem_nb: a part of a turn could not be drawn", error);
  }

  override render() {
    if (!this.state.failed) return this.props.children;
    return (
      <pre class="yiem-plain">
        {visible(JSON.stringify(this.props.item, null, 1).slice(0, 4000))}
      </pre>
    );
  }
}
