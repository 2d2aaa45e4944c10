// What the kernel has said, whatever was lost, doubled or late on the way. No DOM.
import { batch, type Signal, signal } from "@preact/signals";
import type {
  AgentEvent,
  BlockMessage,
  DeltaKind,
  DeltaMessage,
  EventMessage,
  KernelMessage,
  Packet,
  SessionView,
  StampedEvent,
  TickMessage,
  TurnOrigin,
  TurnSnapshot,
} from "./protocol";
import { VERSION } from "./protocol";
import { type AgentState, EMPTY, type OpenBlock, reduce } from "./state";
import { points, withoutPoints } from "./text";

interface Early {
  readonly off: number;
  readonly txt: string;
}

/** One prompt and all that came of it. */
export class Turn {
  origin: TurnOrigin = "chat";
  cell: string | null = null;
  label = "";
  waiting = "";
  /** The fold of `events`, with the text that is arriving. */
  state: AgentState = EMPTY;
  /** The number of the event that began the streaming message; 0 while none streams. */
  message = 0;
  /** Whether something is known to be missing. */
  readonly stale: Signal<boolean> = signal(false);
  /** Changes with each event, and when a block begins. */
  readonly version: Signal<number> = signal(0);
  /** Changes when text has arrived. */
  readonly pulse: Signal<number> = signal(0);
  private readonly byNumber = new Map<number, StampedEvent>();
  private counts = new Map<number, number>();
  private early = new Map<number, Early[]>();
  private highest = 0;

  constructor(readonly id: string) {}

  /** The events there are, in their order. */
  get events(): StampedEvent[] {
    return [...this.byNumber.values()].sort((a, b) => a.n - b.n);
  }

  get hasGap(): boolean {
    return this.byNumber.size < this.highest;
  }

  get running(): boolean {
    return this.state.isStreaming;
  }

  block(index: number): OpenBlock | undefined {
    return this.state.deltas?.blocks.get(index);
  }

  take(message: EventMessage): void {
    this.origin = message.origin;
    this.cell = message.cell;
    this.label = message.label;
    this.waiting = message.waiting;
    if (this.byNumber.has(message.n)) return;
    this.byNumber.set(message.n, { n: message.n, t: message.t, e: message.e });
    const late = message.n < this.highest;
    this.highest = Math.max(this.highest, message.n);
    if (late) this.refold();
    else this.fold(message.n, message.e);
    this.version.value++;
  }

  delta(message: DeltaMessage): void {
    if (!this.streams(message.message)) return;
    const known = this.block(message.block) !== undefined;
    const have = this.counts.get(message.block) ?? 0;
    if (message.off > have) {
      const waiting = this.early.get(message.block) ?? [];
      this.early.set(message.block, [...waiting, { off: message.off, txt: message.txt }]);
      return;
    }
    const { block, what, id, name } = message;
    this.append(block, what, withoutPoints(message.txt, have - message.off), id, name);
    this.catchUp(block, what);
    if (!known) this.version.value++;
    this.pulse.value++;
  }

  /** The whole text of a block: what differs is replaced. */
  whole(message: BlockMessage): void {
    if (!this.streams(message.message)) return;
    if (this.block(message.block)?.text === message.text) return;
    this.set(message.block, message.what, message.text, message.id, message.name);
    this.version.value++;
    this.pulse.value++;
  }

  restore(snapshot: TurnSnapshot): void {
    this.origin = snapshot.origin;
    this.cell = snapshot.cell;
    this.label = snapshot.label;
    this.waiting = snapshot.waiting;
    for (const event of snapshot.events) this.byNumber.set(event.n, event);
    this.highest = Math.max(this.highest, ...snapshot.events.map((event) => event.n), 0);
    this.refold();
    if (snapshot.message && this.message === snapshot.message) {
      for (const open of snapshot.open) {
        const shown = this.block(open.block)?.text ?? "";
        if (points(open.text) >= points(shown)) {
          this.set(open.block, open.kind, open.text, open.id, open.name);
        }
      }
    }
    this.stale.value = this.hasGap;
    this.version.value++;
    this.pulse.value++;
  }

  /** Whether this is less than the kernel has sent. */
  isBehind(height: TickMessage["turns"][number]): boolean {
    if (this.byNumber.size < height.n) return true;
    if (height.message !== this.message) return height.message > this.message;
    return Object.entries(height.open).some(([block, length]) => {
      return (this.counts.get(Number(block)) ?? 0) < length;
    });
  }

  private streams(message: number): boolean {
    if (message > this.message && message > this.highest) {
      // Its beginning is late or lost; the text is shown all the same.
      this.open(message);
    }
    return message === this.message && this.state.deltas !== null;
  }

  private open(message: number): void {
    this.message = message;
    this.counts = new Map();
    this.early = new Map();
    if (!this.state.deltas || this.state.deltas.blocks.size) {
      const deltas = { start: { role: "assistant", content: [] } as const, blocks: new Map() };
      this.state = { ...this.state, isStreaming: true, deltas };
    }
  }

  private fold(n: number, event: AgentEvent): void {
    const begins = event.type === "message_start" && event.message.role === "assistant";
    if (begins && n === this.message) return; // its text was here before it
    this.state = reduce(this.state, event);
    if (begins) this.open(n);
    else if (!this.state.deltas) this.message = 0;
  }

  private refold(): void {
    const before = { message: this.message, deltas: this.state.deltas, counts: this.counts };
    this.state = EMPTY;
    this.message = 0;
    for (const event of this.events) this.fold(event.n, event.e);
    if (before.deltas && this.message === before.message && this.state.deltas) {
      const blocks = before.deltas.blocks;
      this.state = { ...this.state, deltas: { ...this.state.deltas, blocks } };
      this.counts = before.counts;
    }
  }

  private append(index: number, kind: DeltaKind, text: string, id: string, name: string): void {
    this.state = reduce(this.state, { type: "message_update", index, kind, text, id, name });
    this.counts.set(index, (this.counts.get(index) ?? 0) + points(text));
  }

  private set(index: number, kind: DeltaKind, text: string, id: string, name: string): void {
    const deltas = this.state.deltas!;
    const blocks = new Map(deltas.blocks).set(index, { kind, text, id, name });
    this.state = { ...this.state, deltas: { ...deltas, blocks } };
    this.counts.set(index, points(text));
    this.early.delete(index);
  }

  private catchUp(block: number, kind: DeltaKind): void {
    const waiting = (this.early.get(block) ?? []).sort((a, b) => a.off - b.off);
    while (waiting.length && waiting[0]!.off <= this.counts.get(block)!) {
      const { off, txt } = waiting.shift()!;
      this.append(block, kind, withoutPoints(txt, this.counts.get(block)! - off), "", "");
    }
    this.early.set(block, waiting);
  }
}

const NO_SESSION: SessionView = {
  name: "",
  busy: false,
  model: "",
  models: [],
  thinking: "off",
  levels: [],
  queue: [],
  contextUsed: 0,
  contextWindow: 0,
  input: 0,
  cached: 0,
  output: 0,
  cost: 0,
  notice: "",
};

/** All turns and the session they belong to. */
export class Store {
  readonly turns: Signal<readonly Turn[]> = signal([]);
  readonly session: Signal<SessionView> = signal(NO_SESSION);
  /** `connecting` until the first snapshot, `other` where the kernel speaks another version, `gone` after it. */
  readonly link: Signal<"connecting" | "here" | "other" | "gone"> = signal("connecting");
  readonly earlier: Signal<number> = signal(0);
  /** Kernel time less browser time, in milliseconds. */
  lag = 0;
  private epoch = "";

  /** Take a packet; returns the turns that must be asked for again, "" for all of them. */
  take(packet: Packet, now = Date.now()): string[] {
    if (packet.v !== VERSION) {
      this.link.value = "other";
      return [];
    }
    // Another start of the kernel: what was there stays readable, and is not taken for what comes.
    const restarted = this.epoch !== "" && packet.epoch !== this.epoch;
    this.epoch = packet.epoch;
    const missing = batch(() => packet.all.flatMap((message) => this.one(message, now)));
    return restarted ? [...missing, ""] : missing;
  }

  private one(message: KernelMessage, now: number): string[] {
    switch (message.kind) {
      case "snap":
        if (message.whole) this.earlier.value = message.earlier;
        for (const turn of message.turns) this.turn(turn.turn).restore(turn);
        if (message.whole) this.order(message.turns.map((turn) => turn.turn));
        this.session.value = message.session;
        this.link.value = "here";
        return [];
      case "ev": {
        const turn = this.turn(message.turn);
        this.lag = message.t - now;
        turn.take(message);
        return turn.hasGap ? [turn.id] : [];
      }
      case "d":
        this.turn(message.turn).delta(message);
        return [];
      case "blk":
        this.turn(message.turn).whole(message);
        return [];
      case "tick":
        return message.turns
          .filter((height) => {
            const turn = this.turn(height.turn);
            turn.stale.value = turn.isBehind(height);
            return turn.stale.value;
          })
          .map((height) => height.turn);
      case "state":
        this.session.value = message.session;
        return [];
      case "res":
        return [];
      default:
        return []; // a kind that a newer kernel knows
    }
  }

  turn(id: string): Turn {
    const known = this.turns.value.find((turn) => turn.id === id);
    if (known) return known;
    const turn = new Turn(id);
    this.turns.value = [...this.turns.value, turn];
    return turn;
  }

  private order(ids: readonly string[]): void {
    const known = new Map(this.turns.value.map((turn) => [turn.id, turn]));
    const named = ids.map((id) => known.get(id)!);
    const before = this.turns.value.filter((turn) => !ids.includes(turn.id));
    this.turns.value = [...before, ...named];
  }
}
