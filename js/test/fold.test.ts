import { describe, expect, it } from "vitest";
import folds from "../../tests/traces/folds.json";
import type { AgentEvent } from "../src/protocol";
import { type AgentState, EMPTY, reduce, streamingMessage } from "../src/state";

function plain(state: AgentState): unknown {
  return {
    messages: state.messages,
    isStreaming: state.isStreaming,
    streamingMessage: streamingMessage(state),
    pendingToolCalls: state.pendingToolCalls,
    errorMessage: state.errorMessage,
  };
}

interface Fold {
  name: string;
  events: AgentEvent[];
  states: Record<string, unknown>;
}

describe("the fold is Python's", () => {
  for (const { name, events, states } of folds as unknown as Fold[]) {
    it(name, () => {
      let state = EMPTY;
      events.forEach((event, index) => {
        state = reduce(state, event);
        if (index in states) expect(plain(state)).toEqual(states[index]);
      });
    });
  }
});
