// A question to the person. It stands outside of all drawn text, shows exactly what would run, and takes one
// answer; whatever comes within its first moments was meant for something else.
import { useEffect, useRef, useState } from "preact/hooks";
import type { ToolApprovalRequestEvent } from "../protocol";
import { visible } from "../text";
import { Arguments } from "./Call";
import { HOLDS_KEYS } from "./keys";
import type { Engine } from "./mount";

/** Clicks and keys that come sooner are not an answer. */
export const GUARD = 400;

type Mode = "ask" | "deny" | "edit";
export type Question = ToolApprovalRequestEvent & {
  nonce?: string;
  reason?: string;
  offersSession?: boolean;
  problem?: string;
};

export function Approval({ question, engine }: { question: Question; engine: Engine }) {
  const [mode, setMode] = useState<Mode>("ask");
  const [sent, setSent] = useState(false);
  const [note, setNote] = useState("");
  const [edited, setEdited] = useState(() => JSON.stringify(question.args, null, 2));
  const [problem, setProblem] = useState(question.problem ?? "");
  const shownAt = useRef(0);
  useEffect(() => {
    shownAt.current = performance.now();
    setSent(false);
    setProblem(question.problem ?? "");
  }, [question.nonce]);

  const answer = async (decision: string, reason = "", args = "") => {
    if (sent || performance.now() - shownAt.current < GUARD) return;
    setSent(true);
    const given = { nonce: question.nonce ?? "", decision, reason, arguments: args };
    const answered = await engine.link.request("approve", given);
    if (!answered.ok) {
      setProblem(answered.error);
      setSent(false);
    }
  };
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.repeat && (event.key === "Enter" || event.key === " ")) event.preventDefault();
    if (event.key === "Escape" && mode !== "ask") setMode("ask");
  };
  const allowEdited = () => {
    if (!isObject(edited)) {
      setProblem('The arguments must be one JSON object, such as {"name": "value"}.');
      return;
    }
    void answer("edit", "", edited);
  };
  const id = question.toolCallId;
  return (
    <div
      class="yiem-ask"
      role="group"
      aria-label={`Allow ${visible(question.toolName)}?`}
      onKeyDown={onKeyDown}
    >
      <Arguments call={{ name: question.toolName, args: question.args, rawArgs: "" }} />
      {question.reason && <p class="yiem-muted">Asked because {visible(question.reason)}.</p>}
      {mode === "deny" && (
        <label class="yiem-field">
          Why not? The model reads it.
          <input
            type="text"
            value={note}
            onInput={(event) => setNote(event.currentTarget.value)}
            onKeyDown={(event) =>
              event.key === "Enter" && !event.isComposing && answer("deny", note)
            }
            {...HOLDS_KEYS}
          />
        </label>
      )}
      {mode === "edit" && (
        <label class="yiem-field">
          Arguments
          <textarea
            class="yiem-code-input"
            dir="ltr"
            rows={Math.min(12, edited.split("\n").length + 1)}
            value={edited}
            spellcheck={false}
            onInput={(event) => setEdited(event.currentTarget.value)}
            {...HOLDS_KEYS}
          />
        </label>
      )}
      {problem && (
        <p class="yiem-error-line" role="alert">
          {problem}
        </p>
      )}
      <div class="yiem-buttons">
        {mode === "ask" && (
          <>
            <Choice
              label="Allow once"
              id={`yiem-approve-${id}`}
              off={sent}
              act={() => answer("once")}
            />
            {question.offersSession !== false && (
              <Choice
                label="Allow for this session"
                id={`yiem-session-${id}`}
                off={sent}
                act={() => answer("session")}
              />
            )}
            <Choice label="Deny …" id={`yiem-deny-${id}`} off={sent} act={() => setMode("deny")} />
            <Choice
              label="Edit arguments"
              id={`yiem-edit-${id}`}
              off={sent}
              act={() => setMode("edit")}
            />
          </>
        )}
        {mode === "deny" && (
          <Choice
            label="Deny"
            id={`yiem-deny-send-${id}`}
            off={sent}
            act={() => answer("deny", note)}
          />
        )}
        {mode === "edit" && (
          <Choice
            label="Allow with these"
            id={`yiem-edit-send-${id}`}
            off={sent}
            act={allowEdited}
          />
        )}
        {mode !== "ask" && (
          <Choice label="Back" id={`yiem-back-${id}`} off={sent} act={() => setMode("ask")} />
        )}
      </div>
    </div>
  );
}

interface ChoiceProps {
  label: string;
  id: string;
  off: boolean;
  act: () => unknown;
}

function Choice({ label, id, off, act }: ChoiceProps) {
  return (
    <button
      type="button"
      class="yiem-button"
      data-testid={id}
      disabled={off}
      onClick={() => act()}
      {...HOLDS_KEYS}
    >
      {label}
    </button>
  );
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}
