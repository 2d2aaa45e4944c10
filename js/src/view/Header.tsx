// Whose conversation this is, who answers it, and how full its context is.
import { money } from "../text";
import { HOLDS_KEYS } from "./keys";
import type { Engine } from "./mount";

const WORDS: Record<string, string> = { off: "no thinking" };

export function Header({ engine }: { engine: Engine }) {
  const session = engine.store.session.value;
  const known = session.models.some((model) => model.name === session.model);
  const pick = (op: "model" | "thinking", name: string) => async (event: Event) => {
    const select = event.currentTarget as HTMLSelectElement;
    const answer = await engine.link.request(op, { [name]: select.value });
    if (!answer.ok) select.value = op === "model" ? session.model : session.thinking;
  };
  return (
    <div class="yiem-head">
      <span class="yiem-name" title={session.name}>
        {session.name || "chat"}
      </span>
      <span class="yiem-picks">
        <select
          aria-label="Model"
          value={session.model}
          onChange={pick("model", "name")}
          {...HOLDS_KEYS}
        >
          {!known && <option value={session.model}>{session.model || "no model chosen"}</option>}
          {session.models.map((model) => (
            <option key={model.name} value={model.name}>
              {model.label}
            </option>
          ))}
        </select>
        {session.levels.length > 1 && (
          <select
            aria-label="Thinking"
            value={session.thinking}
            onChange={pick("thinking", "level")}
            {...HOLDS_KEYS}
          >
            {session.levels.map((level) => (
              <option key={level} value={level}>
                {WORDS[level] ?? `thinking: ${level}`}
              </option>
            ))}
          </select>
        )}
      </span>
      <Meter engine={engine} />
    </div>
  );
}

function Meter({ engine }: { engine: Engine }) {
  const { contextUsed, contextWindow, input, cached, output, cost } = engine.store.session.value;
  const count = (value: number) => value.toLocaleString("en");
  const share = contextWindow ? Math.min(1, contextUsed / contextWindow) : 0;
  const words = contextWindow
    ? `${count(contextUsed)} of ${count(contextWindow)} tokens of context are used`
    : `${count(contextUsed)} tokens of context are used`;
  const totals = `${count(input)} in (${count(cached)} cached) · ${count(output)} out${cost ? ` · ${money(cost)}` : ""}`;
  if (!contextUsed) return null;
  return (
    <span class="yiem-usage" data-testid="yiem-usage" title={`${words}\n${totals}`}>
      {contextWindow > 0 && (
        <meter min={0} max={1} low={0.7} high={0.9} optimum={0} value={share} aria-label={words} />
      )}
      <span>
        {contextWindow ? `${Math.round(share * 100)} %` : count(contextUsed)}
        {cost > 0 ? ` · ${money(cost)}` : ""}
      </span>
    </span>
  );
}
