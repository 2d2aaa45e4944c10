// Made by js/protocol.py from the Python types. Do not edit.

export const VERSION = 1;

export interface UsageCost {
  readonly input?: number;
  readonly output?: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  readonly total?: number;
}

export interface Usage {
  readonly input?: number;
  readonly output?: number;
  readonly cacheRead?: number;
  readonly cacheWrite?: number;
  readonly reasoning?: number;
  readonly totalTokens?: number;
  readonly cost?: UsageCost;
  readonly reported?: boolean;
}

export interface TextContent {
  readonly type: "text";
  readonly text: string;
}

export interface ImageContent {
  readonly type: "image";
  readonly data: string;
  readonly mimeType: string;
}

export interface ReasoningContent {
  readonly type: "thinking";
  readonly thinking: string;
  readonly thinkingSignature?: string;
  readonly redacted?: boolean;
  readonly field?: string;
  readonly itemId?: string;
}

export interface AgentToolCall {
  readonly type: "toolCall";
  readonly id: string;
  readonly name: string;
  readonly arguments?: Readonly<Record<string, unknown>>;
  readonly rawArguments?: string;
  readonly incomplete?: boolean;
  readonly invalid?: boolean;
  readonly thoughtSignature?: string;
  readonly itemId?: string;
  readonly recovered?: boolean;
}

export type ContentBlock = TextContent | ImageContent | ReasoningContent | AgentToolCall;

export interface UserMessage {
  readonly role: "user";
  readonly content: readonly (ContentBlock)[];
  readonly timestamp?: number;
}

export interface AssistantMessage {
  readonly role: "assistant";
  readonly content: readonly (ContentBlock)[];
  readonly api?: string;
  readonly provider?: string;
  readonly model?: string;
  readonly usage?: Usage;
  readonly stopReason?: "stop" | "length" | "toolUse" | "error" | "aborted";
  readonly timestamp?: number;
  readonly errorMessage?: string;
  readonly errorCode?: string;
  readonly retryable?: boolean;
  readonly rawStopReason?: string;
}

export interface ToolResultMessage {
  readonly role: "toolResult";
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly content: readonly (ContentBlock)[];
  readonly details?: unknown;
  readonly usage?: Usage;
  readonly addedToolNames?: readonly (string)[];
  readonly isError?: boolean;
  readonly timestamp?: number;
  readonly aborted?: boolean;
}

export interface AgentToolResult {
  readonly content: readonly (ContentBlock)[];
  readonly details?: unknown;
  readonly usage?: Usage;
  readonly addedToolNames?: readonly (string)[];
  readonly isError?: boolean;
}

export type AgentMessage = UserMessage | AssistantMessage | ToolResultMessage;

export type DeltaKind = "text" | "thinking" | "toolCall";

export interface AgentStartEvent {
  readonly type: "agent_start";
}

export interface AgentEndEvent {
  readonly messages: readonly (AgentMessage)[];
  readonly type: "agent_end";
}

export interface TurnStartEvent {
  readonly type: "turn_start";
}

export interface TurnEndEvent {
  readonly message: AssistantMessage;
  readonly toolResults: readonly (ToolResultMessage)[];
  readonly type: "turn_end";
}

export interface MessageStartEvent {
  readonly message: AgentMessage;
  readonly type: "message_start";
}

export interface MessageEndEvent {
  readonly message: AgentMessage;
  readonly type: "message_end";
}

export interface ToolExecutionStartEvent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly type: "tool_execution_start";
}

export interface ToolExecutionEndEvent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly result: AgentToolResult;
  readonly isError: boolean;
  readonly type: "tool_execution_end";
}

export interface MessageUpdateEvent {
  readonly index: number;
  readonly kind: "text" | "thinking" | "toolCall";
  readonly text: string;
  readonly id: string;
  readonly name: string;
  readonly type: "message_update";
}

export interface ToolExecutionUpdateEvent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly partialResult: AgentToolResult;
  readonly type: "tool_execution_update";
}

export interface ToolApprovalRequestEvent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly args: Readonly<Record<string, unknown>>;
  readonly nonce: string;
  readonly reason: string;
  readonly offersSession: boolean;
  readonly problem: string;
  readonly type: "tool_approval_request";
}

export interface ToolApprovalEndEvent {
  readonly toolCallId: string;
  readonly toolName: string;
  readonly approved: boolean;
  readonly reason: string;
  readonly args: Readonly<Record<string, unknown>> | null;
  readonly type: "tool_approval_end";
}

export interface RetryEvent {
  readonly attempt: number;
  readonly delay: number;
  readonly reason: string;
  readonly type: "retry";
}

export interface CompactionStartEvent {
  readonly reason: string;
  readonly type: "compaction_start";
}

export interface CompactionEndEvent {
  readonly message: UserMessage | null;
  readonly kept: number;
  readonly tokensBefore: number;
  readonly tokensAfter: number;
  readonly usage: Usage | null;
  readonly errorMessage: string | null;
  readonly type: "compaction_end";
}

export interface QueueUpdateEvent {
  readonly steering: readonly (AgentMessage)[];
  readonly followUp: readonly (AgentMessage)[];
  readonly type: "queue_update";
}

export interface SessionEvent {
  readonly change: "leaf" | "label" | "name" | "storage";
  readonly entryId: string | null;
  readonly value: string | null;
  readonly type: "session";
}

export type AgentEvent =
  | AgentStartEvent
  | AgentEndEvent
  | TurnStartEvent
  | TurnEndEvent
  | MessageStartEvent
  | MessageEndEvent
  | ToolExecutionStartEvent
  | ToolExecutionEndEvent
  | MessageUpdateEvent
  | ToolExecutionUpdateEvent
  | ToolApprovalRequestEvent
  | ToolApprovalEndEvent
  | RetryEvent
  | CompactionStartEvent
  | CompactionEndEvent
  | QueueUpdateEvent
  | SessionEvent;

export type TurnOrigin = "cell" | "chat" | "python";

export interface BlockMessage {
  readonly kind: "blk";
  readonly turn: string;
  readonly message: number;
  readonly block: number;
  readonly what: "text" | "thinking" | "toolCall";
  readonly text: string;
  readonly id: string;
  readonly name: string;
}

export interface DeltaMessage {
  readonly kind: "d";
  readonly turn: string;
  readonly message: number;
  readonly block: number;
  readonly what: "text" | "thinking" | "toolCall";
  readonly off: number;
  readonly txt: string;
  readonly id: string;
  readonly name: string;
}

export interface EventMessage {
  readonly kind: "ev";
  readonly turn: string;
  readonly origin: "cell" | "chat" | "python";
  readonly cell: string | null;
  readonly label: string;
  readonly waiting: string;
  readonly n: number;
  readonly t: number;
  readonly e: AgentEvent;
}

export interface HelloMessage {
  readonly kind: "hello";
  readonly v: number;
}

export interface ModelChoice {
  readonly name: string;
  readonly label: string;
}

export interface NeedMessage {
  readonly kind: "need";
  readonly turns: readonly (string)[];
}

export interface OpenBlockSnapshot {
  readonly block: number;
  readonly kind: "text" | "thinking" | "toolCall";
  readonly text: string;
  readonly id: string;
  readonly name: string;
}

export interface Packet {
  readonly v: number;
  readonly epoch: string;
  readonly s: number;
  readonly all: readonly (KernelMessage)[];
}

export interface Queued {
  readonly id: string;
  readonly mode: "steer" | "next";
  readonly text: string;
}

export interface RequestMessage {
  readonly kind: "req";
  readonly v: number;
  readonly id: string;
  readonly op: string;
  readonly args: Readonly<Record<string, unknown>>;
}

export interface ResultMessage {
  readonly kind: "res";
  readonly id: string;
  readonly ok: boolean;
  readonly value: unknown;
  readonly error: string;
}

export interface SessionView {
  readonly name: string;
  readonly busy: boolean;
  readonly model: string;
  readonly models: readonly (ModelChoice)[];
  readonly thinking: string;
  readonly levels: readonly (string)[];
  readonly queue: readonly (Queued)[];
  readonly contextUsed: number;
  readonly contextWindow: number;
  readonly input: number;
  readonly cached: number;
  readonly output: number;
  readonly cost: number;
  readonly notice: string;
}

export interface SnapshotMessage {
  readonly kind: "snap";
  readonly whole: boolean;
  readonly earlier: number;
  readonly turns: readonly (TurnSnapshot)[];
  readonly session: SessionView;
}

export interface StampedEvent {
  readonly n: number;
  readonly t: number;
  readonly e: AgentEvent;
}

export interface StateMessage {
  readonly kind: "state";
  readonly session: SessionView;
}

export interface TickMessage {
  readonly kind: "tick";
  readonly turns: readonly (TurnHeight)[];
}

export interface TurnHeight {
  readonly turn: string;
  readonly n: number;
  readonly message: number;
  readonly open: Readonly<Record<string, number>>;
}

export interface TurnSnapshot {
  readonly turn: string;
  readonly origin: "cell" | "chat" | "python";
  readonly cell: string | null;
  readonly label: string;
  readonly waiting: string;
  readonly events: readonly (StampedEvent)[];
  readonly message: number;
  readonly open: readonly (OpenBlockSnapshot)[];
  readonly done: boolean;
}

export type KernelMessage = SnapshotMessage | EventMessage | DeltaMessage | BlockMessage | TickMessage | StateMessage | ResultMessage;

export type Operation = "prompt" | "steer" | "follow_up" | "unqueue" | "stop" | "approve" | "model" | "thinking" | "complete" | "earlier" | "insert";
