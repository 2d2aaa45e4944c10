// The engine: one for each agent of a kernel. It holds this code and all that the kernel has said; views of
// turns and of the chat panel are mounted on it.
import { Link, type Model } from "./link";
import { Store } from "./store";
import { type Engine, mountPanel, mountTurn } from "./view/mount";

const engines = new Map<string, Engine>();

function engineOf(model: Model, signal?: AbortSignal): Engine {
  const id = String(model.get("engine_id"));
  const known = engines.get(id);
  if (known) return known;
  const store = new Store();
  const link = new Link(model, store);
  const engine: Engine = { id, store, link, model };
  engines.set(id, engine);
  link.open(signal);
  signal?.addEventListener("abort", () => engines.delete(id));
  return engine;
}

export default {
  // Nothing is awaited: a host that waits too long for this drops every message that follows.
  initialize({ model, signal }: { model: Model; signal?: AbortSignal }) {
    const engine = engineOf(model, signal);
    return {
      engine,
      mountTurn: (el: HTMLElement, turn: string, from: number, end: AbortSignal) =>
        mountTurn(engine, el, turn, from, end),
    };
  },
  render({ model, el, signal }: { model: Model; el: HTMLElement; signal: AbortSignal }) {
    mountPanel(engineOf(model), el, signal);
  },
};
