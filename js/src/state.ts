// The twin of yiem_nb/state.py: state is a fold over events, and nothing else changes it.
import type {
  AgentEvent,
  AgentMessage,
  AssistantMessage,
  ContentBlock,
  DeltaKind,
  MessageUpdateEvent,
} from "./protocol";

/** One block of the streaming message. */
export interface OpenBlock {
  readonly kind: DeltaKind;
  readonly text: string;
  readonly id: string;
  readonly name: string;
}

/** The streaming message as far as it has arrived. */
export interface Deltas {
  readonly start: AssistantMessage;
  readonly blocks: ReadonlyMap<number, OpenBlock>;
}

export interface AgentState {
  readonly messages: readonly AgentMessage[];
  readonly isStreaming: boolean;
  readonly deltas: Deltas | null;
  readonly pendingToolCalls: readonly string[];
  readonly errorMessage: string | null;
}

export const EMPTY: AgentState = {
  messages: [],
  isStreaming: false,
  deltas: null,
  pendingToolCalls: [],
  errorMessage: null,
};

/** The state after `event`. */
export function reduce(state: AgentState, event: AgentEvent): AgentState {
  switch (event.type) {
    case "message_update":
      return state.deltas ? { ...state, deltas: append(state.deltas, event) } : state;
    case "agent_start":
      return { ...state, isStreaming: true, errorMessage: null };
    case "agent_end":
      return { ...state, isStreaming: false, deltas: null, pendingToolCalls: [] };
    case "message_start":
      return event.message.role === "assistant"
        ? { ...state, deltas: { start: event.message, blocks: new Map() } }
        : state;
    case "message_end": {
      const messages = [...state.messages, event.message];
      if (event.message.role !== "assistant") return { ...state, messages };
      const errorMessage = event.message.errorMessage || state.errorMessage;
      return { ...state, messages, deltas: null, errorMessage };
    }
    case "compaction_end": {
      if (!event.message) return state;
      const kept = state.messages.slice(state.messages.length - event.kept);
      return { ...state, messages: [event.message, ...kept] };
    }
    case "tool_execution_start":
      return state.pendingToolCalls.includes(event.toolCallId)
        ? state
        : { ...state, pendingToolCalls: [...state.pendingToolCalls, event.toolCallId] };
    case "tool_execution_end": {
      const pendingToolCalls = state.pendingToolCalls.filter((id) => id !== event.toolCallId);
      return { ...state, pendingToolCalls };
    }
    default:
      return state;
  }
}

function append(deltas: Deltas, event: MessageUpdateEvent): Deltas {
  const blocks = new Map(deltas.blocks);
  const block = blocks.get(event.index);
  blocks.set(event.index, {
    kind: block?.kind ?? event.kind,
    text: (block?.text ?? "") + event.text,
    id: block?.id || event.id,
    name: block?.name || event.name,
  });
  return { start: deltas.start, blocks };
}

/** The message that is arriving; a call without whole arguments is incomplete. */
export function streamingMessage(state: AgentState): AssistantMessage | null {
  if (!state.deltas) return null;
  const order = [...state.deltas.blocks].sort(([a], [b]) => a - b);
  return { ...state.deltas.start, content: order.map(([, block]) => content(block)) };
}

function content(block: OpenBlock): ContentBlock {
  if (block.kind === "text") return { type: "text", text: block.text };
  if (block.kind === "thinking") return { type: "thinking", thinking: block.text };
  const call = { type: "toolCall", id: block.id, name: block.name } as const;
  const parsed = parseObject(block.text);
  return parsed
    ? { ...call, arguments: parsed }
    : { ...call, arguments: {}, rawArguments: block.text, incomplete: true };
}

function parseObject(text: string): Record<string, unknown> | null {
  try {
    const value: unknown = JSON.parse(text);
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return isObject ? (value as Record<string, unknown>) : null;
  } catch {
    return null;
  }
}
