// The way to the kernel: messages in, wishes out. It owns no page and no state of the conversation.
import type { Operation, Packet } from "./protocol";
import { VERSION } from "./protocol";
import type { Store } from "./store";

/** What a host gives a widget. */
export interface Model {
  get(name: string): unknown;
  send(content: unknown): void;
  on(name: string, callback: (...given: never[]) => void): void;
  off(name: string, callback?: (...given: never[]) => void): void;
  widget_manager?: unknown;
}

export interface Answer {
  readonly ok: boolean;
  readonly value: unknown;
  readonly error: string;
}

/** How long a wish may stay unanswered before the person is told; a busy kernel may still carry it out. */
const PATIENCE = 20_000;
const ASK_AGAIN = 500;

export class Link {
  private readonly waiting = new Map<string, (answer: Answer) => void>();
  private readonly missing = new Set<string>();
  private asking: ReturnType<typeof setTimeout> | undefined;
  private count = 0;
  private readonly page = Math.random().toString(36).slice(2, 10);

  constructor(
    private readonly model: Model,
    private readonly store: Store,
  ) {}

  /** Listen, and ask for what there is. Must not wait for anything: early messages would be lost. */
  open(signal?: AbortSignal): void {
    const listen = (message: unknown) => this.take(message);
    this.model.on("msg:custom", listen as never);
    const gone = () => {
      this.store.link.value = "gone";
    };
    for (const event of ["comm:close", "comm_live_update"]) this.model.on(event, gone as never);
    this.hello(0);
    signal?.addEventListener("abort", () => {
      this.model.off("msg:custom", listen as never);
      clearTimeout(this.asking);
    });
  }

  /** Ask the kernel for `op`. */
  request(op: Operation, args: Record<string, unknown> = {}): Promise<Answer> {
    const id = `${this.page}.${++this.count}`;
    return new Promise((resolve) => {
      const timer = setTimeout(() => {
        this.waiting.delete(id);
        resolve({
          ok: false,
          value: null,
          error: "The kernel has not answered yet; it may be busy.",
        });
      }, PATIENCE);
      this.waiting.set(id, (answer) => {
        clearTimeout(timer);
        resolve(answer);
      });
      this.send({ kind: "req", v: VERSION, id, op, args });
    });
  }

  private take(content: unknown): void {
    if (typeof content !== "object" || content === null || !("all" in content)) return;
    const packet = content as Packet;
    if (!Array.isArray(packet.all)) return;
    try {
      for (const turn of this.store.take(packet)) this.need(turn);
    } catch (error) {
      console.error("yiem_nb: a message was not understood", error);
    }
    if (packet.v !== VERSION) return;
    for (const message of packet.all) {
      if (message.kind !== "res") continue;
      this.waiting.get(message.id)?.(message);
      this.waiting.delete(message.id);
    }
  }

  /** Ask for turns that have gaps, once for many of them; they may be on their way. */
  private need(turn: string): void {
    this.missing.add(turn);
    this.asking ??= setTimeout(() => {
      this.asking = undefined;
      const turns = [...this.missing].filter((id) => id && this.isIncomplete(id));
      const all = this.missing.has("");
      this.missing.clear();
      if (all || turns.length) this.send({ kind: "need", turns: all ? [] : turns });
    }, ASK_AGAIN);
  }

  private isIncomplete(id: string): boolean {
    const turn = this.store.turn(id);
    return turn.hasGap || turn.stale.value;
  }

  private hello(tries: number): void {
    if (this.store.link.value !== "connecting" || tries > 8) return;
    this.send({ kind: "hello", v: VERSION });
    setTimeout(() => this.hello(tries + 1), 1000 * 2 ** tries);
  }

  private send(content: unknown): void {
    try {
      this.model.send(content);
    } catch (error) {
      console.warn("yiem_nb: the kernel cannot be reached", error);
    }
  }
}
