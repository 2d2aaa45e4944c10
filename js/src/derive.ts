// A turn → what is shown of it, in order. Pure.
import type {
  AgentToolResult,
  AssistantMessage,
  ContentBlock,
  ImageContent,
  ToolApprovalRequestEvent,
} from "./protocol";
import { streamingMessage } from "./state";
import type { Turn } from "./store";
import { money, seconds } from "./text";

export type CallState = "arriving" | "waiting" | "running" | "ok" | "error" | "denied" | "aborted";

export interface CallItem {
  readonly kind: "call";
  readonly key: string;
  readonly id: string;
  readonly name: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** Arguments that are no JSON object (yet). */
  readonly rawArgs: string;
  readonly state: CallState;
  readonly began: number;
  readonly took: number | null;
  readonly printed: string;
  readonly result: string;
  readonly images: readonly ImageContent[];
  readonly summary: string;
  readonly question: ToolApprovalRequestEvent | null;
}

export interface TextItem {
  readonly kind: "text" | "thinking";
  readonly key: string;
  readonly message: number;
  readonly block: number;
  /** The whole text, once it will not change. */
  readonly final: string | null;
  readonly took: number | null;
}

export type Item =
  | TextItem
  | CallItem
  | { kind: "user"; key: string; text: string; images: readonly ImageContent[] }
  | { kind: "notice"; key: string; text: string }
  | { kind: "error"; key: string; text: string; code: string; retry: boolean }
  | { kind: "stopped"; key: string; text: string }
  | { kind: "footer"; key: string; text: string };

export interface TurnShape {
  readonly items: readonly Item[];
  readonly began: number;
  readonly done: boolean;
  readonly waitsForLeave: boolean;
}

interface Draft {
  items: Item[];
  calls: Map<string, CallItem>;
  began: number;
  message: number;
  messageBegan: number;
  usage: {
    input: number;
    output: number;
    cacheRead: number;
    cacheWrite: number;
    cost: number;
    known: boolean;
  };
  last: AssistantMessage | null;
  aborted: boolean;
  done: boolean;
}

/** Everything that is shown of `turn`, from the event numbered `from` on. */
export function shapeOf(turn: Turn, from = 0): TurnShape {
  const draft: Draft = {
    items: [],
    calls: new Map(),
    began: 0,
    message: 0,
    messageBegan: 0,
    usage: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, cost: 0, known: false },
    last: null,
    aborted: false,
    done: false,
  };
  let cut = 0;
  for (const { n, t, e } of turn.events) {
    if (n <= from) cut = draft.items.length;
    draft.began ||= t;
    switch (e.type) {
      case "message_start":
        if (e.message.role === "assistant") {
          draft.message = n;
          draft.messageBegan = t;
          dropNotice(draft);
        }
        break;
      case "message_end":
        if (e.message.role === "user") {
          const text = e.message.content.map((b) => (b.type === "text" ? b.text : "")).join("");
          draft.items.push({
            kind: "user",
            key: `u${n}`,
            text,
            images: imagesOf(e.message.content),
          });
        } else if (e.message.role === "assistant") settle(draft, e.message, n, t);
        else draft.aborted = e.message.aborted === true;
        break;
      case "tool_execution_start":
        change(draft, e.toolCallId, { state: "running", began: t, name: e.toolName, args: e.args });
        break;
      case "tool_execution_update":
        change(draft, e.toolCallId, { name: e.toolName, printed: textOf(e.partialResult.content) });
        break;
      case "tool_execution_end":
        end(draft, e.toolCallId, e.toolName, e.result, e.isError, t);
        break;
      case "tool_approval_request":
        change(draft, e.toolCallId, {
          state: "waiting",
          name: e.toolName,
          args: e.args,
          question: e,
        });
        break;
      case "tool_approval_end": {
        const edited = (e as { args?: Record<string, unknown> | null }).args;
        const state = e.approved ? "running" : "denied";
        change(draft, e.toolCallId, {
          state,
          question: null,
          began: t,
          ...(edited ? { args: edited } : {}),
        });
        break;
      }
      case "retry":
        dropNotice(draft);
        draft.items.push({
          kind: "notice",
          key: `r${n}`,
          text: `${e.reason} Trying again in ${e.delay.toFixed(0)} s.`,
        });
        break;
      case "compaction_start":
        draft.items.push({ kind: "notice", key: `k${n}`, text: "summarising earlier messages" });
        break;
      case "compaction_end":
        dropNotice(draft);
        if (e.errorMessage)
          draft.items.push({ kind: "notice", key: `k${n}`, text: e.errorMessage });
        break;
      case "agent_end":
        draft.done = true;
        finish(draft, turn.label, n, t);
        break;
    }
  }
  if (!draft.done) addStreaming(draft, turn);
  const items = draft.items.slice(cut).map((item) => {
    return item.kind === "call" ? draft.calls.get(item.id)! : item;
  });
  const waitsForLeave = [...draft.calls.values()].some((call) => call.state === "waiting");
  return { items, began: draft.began, done: draft.done, waitsForLeave };
}

function addStreaming(draft: Draft, turn: Turn): void {
  const message = streamingMessage(turn.state);
  if (!message || !turn.state.deltas) return;
  const order = [...turn.state.deltas.blocks.keys()].sort((a, b) => a - b);
  message.content.forEach((block, index) => {
    addBlock(draft, block, turn.message, order[index]!, null, null);
  });
}

function settle(draft: Draft, message: AssistantMessage, n: number, t: number): void {
  const number = draft.message || n;
  message.content.forEach((block, index) => {
    const final =
      block.type === "text" ? block.text : block.type === "thinking" ? block.thinking : "";
    addBlock(draft, block, number, index, final, t - draft.messageBegan);
  });
  draft.message = 0;
  draft.last = message;
  draft.aborted = message.stopReason === "aborted";
  const usage = message.usage;
  if (usage && usage.reported !== false) {
    draft.usage.known = true;
    draft.usage.input += usage.input ?? 0;
    draft.usage.output += usage.output ?? 0;
    draft.usage.cacheRead += usage.cacheRead ?? 0;
    draft.usage.cacheWrite += usage.cacheWrite ?? 0;
    draft.usage.cost += usage.cost?.total ?? 0;
  }
}

function addBlock(
  draft: Draft,
  block: ContentBlock,
  message: number,
  index: number,
  final: string | null,
  took: number | null,
): void {
  const key = `m${message}.${index}`;
  if (block.type === "toolCall") {
    const state = final === null ? "arriving" : "running";
    const rawArgs = block.rawArguments ?? "";
    change(draft, block.id || key, {
      name: block.name,
      args: block.arguments ?? {},
      rawArgs,
      state,
    });
  } else if (block.type === "text" || block.type === "thinking") {
    if (final !== "")
      draft.items.push({ kind: block.type, key, message, block: index, final, took });
  }
}

function change(draft: Draft, id: string, to: Partial<CallItem>): void {
  let call = draft.calls.get(id);
  if (!call) {
    call = {
      kind: "call",
      key: `c${id}`,
      id,
      name: "",
      args: {},
      rawArgs: "",
      state: "arriving",
      began: 0,
      took: null,
      printed: "",
      result: "",
      images: [],
      summary: "",
      question: null,
    };
    draft.items.push(call);
  }
  draft.calls.set(id, { ...call, ...to });
}

function end(
  draft: Draft,
  id: string,
  name: string,
  result: AgentToolResult,
  isError: boolean,
  t: number,
): void {
  const details = (typeof result.details === "object" && result.details) || {};
  const said = details as { code?: string; summary?: string; output?: string };
  const settled: Record<string, CallState> = {
    EXECUTION_ABORTED: "aborted",
    EXECUTION_DENIED: "denied",
  };
  const began = draft.calls.get(id)?.began || t;
  change(draft, id, {
    name,
    state: settled[said.code ?? ""] ?? (isError ? "error" : "ok"),
    took: t - began,
    question: null,
    summary: said.summary ?? "",
    printed: said.output ?? "",
    result: textOf(result.content),
    images: imagesOf(result.content),
  });
}

function finish(draft: Draft, label: string, n: number, t: number): void {
  dropNotice(draft);
  for (const [id, call] of draft.calls) {
    if (call.took === null && call.state !== "denied") {
      draft.calls.set(id, { ...call, state: "aborted", question: null });
    }
  }
  const took = seconds((t - draft.began) / 1000);
  const last = draft.last;
  if (last?.errorMessage && last.stopReason === "error") {
    const retry = last.retryable !== false;
    draft.items.push({
      kind: "error",
      key: `e${n}`,
      text: last.errorMessage,
      code: last.errorCode ?? "",
      retry,
    });
  }
  if (draft.aborted) {
    const text = `stopped after ${took} · the partial answer is kept`;
    draft.items.push({ kind: "stopped", key: `s${n}`, text });
    return;
  }
  const { usage } = draft;
  const count = (value: number) => value.toLocaleString("en");
  const sent = usage.input + usage.cacheRead + usage.cacheWrite;
  const cached = usage.cacheRead ? ` (${count(usage.cacheRead)} cached)` : "";
  const tokens = usage.known
    ? `${count(sent)} in${cached} · ${count(usage.output)} out`
    : "tokens unknown";
  const cost = usage.cost > 0 ? money(usage.cost) : "";
  const text = [label, tokens, took, cost].filter(Boolean).join(" · ");
  draft.items.push({ kind: "footer", key: `f${n}`, text });
}

function dropNotice(draft: Draft): void {
  if (draft.items.at(-1)?.kind === "notice") draft.items.pop();
}

function textOf(content: readonly ContentBlock[]): string {
  return content
    .map((block) => (block.type === "text" ? block.text : ""))
    .filter(Boolean)
    .join("\n\n");
}

function imagesOf(content: readonly ContentBlock[]): ImageContent[] {
  return content.filter((block): block is ImageContent => block.type === "image");
}
