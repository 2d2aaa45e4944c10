import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { shapeOf } from "../src/derive";
import type { AgentEvent, KernelMessage, Packet, SessionView, TurnSnapshot } from "../src/protocol";
import { Store } from "../src/store";
import { points } from "../src/text";

type Body = KernelMessage;

function sent(message: Body, epoch = "a"): Packet {
  return { v: 1, epoch, s: 1, all: [message] };
}

const SESSION = { name: "n", queue: [], models: [], levels: [] } as unknown as SessionView;
const AT = { turn: "t1", origin: "chat", cell: null, label: "m", waiting: "" } as const;
const assistant = (text: string): AgentEvent => ({
  type: "message_end",
  message: { role: "assistant", content: [{ type: "text", text }], stopReason: "stop" },
});

function ev(n: number, e: AgentEvent): Body {
  return { kind: "ev", ...AT, n, t: n * 1000, e };
}

function d(off: number, txt: string, message = 3): Body {
  return { kind: "d", turn: "t1", message, block: 0, what: "text", off, txt, id: "", name: "" };
}

/** What the kernel sends for a turn whose answer is `pieces`. */
function conversation(
  pieces: string[],
  ended: boolean,
): { messages: Body[]; snapshot: TurnSnapshot } {
  const user = { role: "user", content: [{ type: "text", text: "hi" }] } as const;
  const events: AgentEvent[] = [
    { type: "agent_start" },
    { type: "message_end", message: user },
    { type: "message_start", message: { role: "assistant", content: [] } },
  ];
  const messages = events.map((e, index) => ev(index + 1, e));
  let off = 0;
  for (const piece of pieces) {
    messages.push(d(off, piece));
    off += points(piece);
  }
  const text = pieces.join("");
  if (ended) {
    events.push(assistant(text), { type: "agent_end", messages: [] });
    messages.push(ev(4, events[3]!), ev(5, events[4]!));
  }
  const stamped = events.map((e, index) => ({ n: index + 1, t: (index + 1) * 1000, e }));
  const open = ended ? [] : [{ block: 0, kind: "text", text, id: "", name: "" } as const];
  const snapshot = { ...AT, events: stamped, message: ended ? 0 : 3, open, done: ended };
  return { messages, snapshot };
}

function shown(store: Store): string {
  const turn = store.turn("t1");
  return shapeOf(turn)
    .items.map((item) =>
      item.kind === "text" ? (item.final ?? turn.block(item.block)?.text) : `<${item.kind}>`,
    )
    .join("");
}

const piece = fc.oneof(
  fc.string({ maxLength: 6 }),
  fc.constantFrom("👩‍👩‍👧", "é", "مر", "\n\n", "🇵🇹"),
);

describe("what was sent is what is shown", () => {
  it("whatever is lost, doubled and out of order, once the gap is filled", () => {
    fc.assert(
      fc.property(
        fc.array(piece, { maxLength: 12 }),
        fc.array(fc.nat(9)),
        fc.boolean(),
        (pieces, fates, ended) => {
          const { messages, snapshot } = conversation(pieces, ended);
          const store = new Store();
          const arriving: Body[] = [];
          messages.forEach((message, index) => {
            const fate = fates[index % Math.max(fates.length, 1)] ?? 5;
            if (fate === 0) return;
            if (fate === 1) arriving.splice(Math.max(arriving.length - 1, 0), 0, message);
            else arriving.push(message);
            if (fate === 2) arriving.push(message);
          });
          for (const message of arriving) store.take(sent(message));
          const text = pieces.join("");
          const open = ended ? {} : { 0: points(text) };
          const height = { turn: "t1", n: ended ? 5 : 3, message: ended ? 0 : 3, open };
          const behind = store.take(sent({ kind: "tick", turns: [height] } as Body));
          const asked = behind.length > 0;
          if (asked) {
            store.take(
              sent({ kind: "snap", whole: false, earlier: 0, turns: [snapshot], session: SESSION }),
            );
          }
          const whole = new Store();
          whole.take(
            sent({ kind: "snap", whole: true, earlier: 0, turns: [snapshot], session: SESSION }),
          );
          expect(shown(store)).toBe(shown(whole));
          expect(store.take(sent({ kind: "tick", turns: [height] } as Body))).toEqual([]);
        },
      ),
    );
  });

  it("a closed message heals its text without a word from here", () => {
    const store = new Store();
    const { messages } = conversation(["one ", "two ", "three"], true);
    for (const [index, message] of messages.entries()) if (index !== 4) store.take(sent(message));
    expect(shown(store)).toContain("one two three");
  });

  it("a late piece is put where it belongs", () => {
    const store = new Store();
    const { messages } = conversation([], false);
    for (const message of messages) store.take(sent(message));
    for (const message of [d(0, "ab"), d(4, "ef"), d(2, "cd"), d(2, "cd")])
      store.take(sent(message));
    expect(store.turn("t1").block(0)?.text).toBe("abcdef");
  });

  it("text of an earlier message is not taken for this one's", () => {
    const store = new Store();
    for (const message of conversation(["old"], true).messages) store.take(sent(message));
    store.take(sent(ev(6, { type: "message_start", message: { role: "assistant", content: [] } })));
    store.take(sent(d(0, "late", 3)));
    store.take(sent(d(0, "new", 6)));
    expect(store.turn("t1").block(0)?.text).toBe("new");
  });

  it("a message of another version is not read", () => {
    const store = new Store();
    store.take({ ...sent(ev(1, { type: "agent_start" })), v: 2 });
    expect(store.link.value).toBe("other");
    expect(store.turns.value).toEqual([]);
  });

  it("a kind nobody knows changes nothing, and a new start of the kernel asks for all", () => {
    const store = new Store();
    store.take(sent({ kind: "snap", whole: true, earlier: 0, turns: [], session: SESSION }));
    expect(store.take(sent({ kind: "riddle" } as unknown as Body))).toEqual([]);
    expect(store.take(sent(ev(1, { type: "agent_start" }), "b"))).toEqual([""]);
  });
});
