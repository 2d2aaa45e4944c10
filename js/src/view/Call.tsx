// A tool call: one line that opens, and a question where it waits for leave.
import { useState } from "preact/hooks";
import type { CallItem } from "../derive";
import { coloured } from "../markdown/highlight";
import { cleaned, clipped, seconds, sizeOf, visible } from "../text";
import { Approval } from "./Approval";
import { useSeconds } from "./clock";
import { HOLDS_KEYS } from "./keys";
import { copy, type Engine, flash } from "./mount";
import { Picture } from "./Picture";

const WORDS: Record<CallItem["state"], string> = {
  arriving: "preparing",
  waiting: "waiting for you",
  running: "running",
  ok: "",
  error: "failed",
  denied: "not allowed",
  aborted: "stopped",
};
const MARKS: Partial<Record<CallItem["state"], string>> = {
  waiting: "?",
  error: "✕",
  denied: "✕",
  aborted: "■",
  ok: "✓",
};

export function Call({ call, engine }: { call: CallItem; engine: Engine }) {
  const [open, setOpen] = useState(false);
  const running = call.state === "running" && call.began > 0;
  const elapsed = useSeconds(call.began, engine.store.lag, running);
  const took = call.took !== null ? seconds(call.took / 1000) : running ? seconds(elapsed) : "";
  const body = `yiem-call-${engine.id}-${call.id}`;
  const right = [WORDS[call.state], call.state === "waiting" ? "" : took].filter(Boolean).join(" ");
  return (
    <div class="yiem-call" data-state={call.state} data-testid={`yiem-tool-${call.id}`}>
      <button
        type="button"
        class="yiem-line"
        aria-expanded={open}
        aria-controls={body}
        onClick={() => setOpen(!open)}
        {...HOLDS_KEYS}
      >
        <span class="yiem-fold" aria-hidden="true" />
        <code class="yiem-call-text">{callLine(call)}</code>
        {call.summary && call.state === "ok" && (
          <span class="yiem-summary">→ {visible(call.summary)}</span>
        )}
        <span class="yiem-right">
          <span class="yiem-mark" aria-hidden="true">
            {MARKS[call.state] ?? ""}
          </span>
          {right}
        </span>
      </button>
      {call.question && <Approval question={call.question} engine={engine} />}
      <div id={body} class="yiem-inside" hidden={!open}>
        {open && <Inside call={call} />}
      </div>
      {call.images.map((image, index) => (
        <Picture key={index} image={image} alt={`image from ${call.name}`} />
      ))}
      {call.state === "error" && !open && <p class="yiem-error-line">{lastLine(call.result)}</p>}
      {running && call.printed && !open && <p class="yiem-live">{lastLine(call.printed)}</p>}
    </div>
  );
}

function Inside({ call }: { call: CallItem }) {
  return (
    <>
      <Arguments call={call} />
      {call.printed && <Part title="printed" text={cleaned(call.printed)} />}
      {call.result && <Part title="the model received" text={visible(cleaned(call.result))} />}
    </>
  );
}

/** How the arguments of a tool are shown, by the tool's name; rows of JSON for all others. */
const RENDERERS: Record<
  string,
  (args: Readonly<Record<string, unknown>>) => preact.JSX.Element | null
> = {
  python: (args) => (typeof args.code === "string" ? <Code code={args.code} /> : null),
  edit: (args) => {
    const [before, after] = [args.old_text ?? args.oldText, args.new_text ?? args.newText];
    return typeof before === "string" && typeof after === "string" ? (
      <Difference before={before} after={after} />
    ) : null;
  },
};

export function Arguments({ call }: { call: Pick<CallItem, "name" | "args" | "rawArgs"> }) {
  const known = Object.hasOwn(RENDERERS, call.name) ? RENDERERS[call.name]!(call.args) : null;
  const text = call.rawArgs ? visible(call.rawArgs) : rows(call.args);
  return (
    <>
      {known}
      <Part title="arguments" text={text} />
    </>
  );
}

/** `name = value`, exact, every hidden character visible. */
export function rows(args: Readonly<Record<string, unknown>>): string {
  const lines = Object.entries(args).map(([name, value]) => {
    return `${visible(name)} = ${visible(JSON.stringify(value) ?? "null")}`;
  });
  return lines.join("\n") || "none";
}

const HEAD = 20;
const MOST_LINES = 2000;

export function Part({ title, text }: { title: string; text: string }) {
  const [all, setAll] = useState(false);
  const lines = text.split("\n");
  const long = lines.length > HEAD || text.length > 4000;
  const shown = all
    ? clipped(lines.slice(0, MOST_LINES).join("\n"), 400_000)
    : clipped(lines.length > HEAD ? `${lines.slice(0, HEAD).join("\n")}\n…` : text);
  return (
    <div class="yiem-part" role="group" aria-label={title}>
      <div class="yiem-part-bar">
        <span>
          {title} · {sizeOf(text)}
        </span>
        <span>
          {long && (
            <button type="button" class="yiem-quiet" onClick={() => setAll(!all)} {...HOLDS_KEYS}>
              {all ? "Show less" : "Show all"}
            </button>
          )}
          <button
            type="button"
            class="yiem-quiet"
            onClick={async (event) => {
              const button = event.currentTarget;
              flash(button, (await copy(text)) ? "Copied" : "Not copied");
            }}
            {...HOLDS_KEYS}
          >
            Copy
          </button>
        </span>
      </div>
      <pre dir="ltr" tabIndex={0} {...HOLDS_KEYS}>
        {shown}
      </pre>
    </div>
  );
}

function Code({ code }: { code: string }) {
  return (
    <pre dir="ltr" class="yiem-source">
      <code
        ref={(place) => {
          place?.replaceChildren(coloured(visible(code).slice(0, 20_000), "python"));
        }}
      />
    </pre>
  );
}

function Difference({ before, after }: { before: string; after: string }) {
  const [old, now] = [before.split("\n"), after.split("\n")];
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  const most = Math.min(old.length, now.length) - head;
  while (tail < most && old[old.length - 1 - tail] === now[now.length - 1 - tail]) tail++;
  const gone = old.slice(head, old.length - tail).slice(0, 200);
  const come = now.slice(head, now.length - tail).slice(0, 200);
  return (
    <pre dir="ltr" class="yiem-diff">
      {old.slice(Math.max(0, head - 2), head).map((line, i) => (
        <div key={`a${i}`}>{`  ${visible(line)}`}</div>
      ))}
      {gone.map((line, i) => (
        <del key={`b${i}`}>{`- ${visible(line)}`}</del>
      ))}
      {come.map((line, i) => (
        <ins key={`c${i}`}>{`+ ${visible(line)}`}</ins>
      ))}
    </pre>
  );
}

function callLine(call: CallItem): string {
  if (call.state === "arriving" || call.rawArgs) {
    return `${visible(call.name)}(${short(call.rawArgs, 60)}`;
  }
  const written = Object.entries(call.args).map(([name, value]) => {
    return `${visible(name)}=${short(JSON.stringify(value) ?? "null", 60)}`;
  });
  return `${visible(call.name)}(${written.join(", ")})`;
}

function short(text: string, limit: number): string {
  const seen = visible(text.slice(0, limit * 4));
  return seen.length <= limit ? seen : `${seen.slice(0, limit - 1)}…`;
}

function lastLine(text: string): string {
  const lines = visible(cleaned(text.slice(-4000))).split("\n");
  return lines.filter((line) => line.trim()).at(-1) ?? "";
}
