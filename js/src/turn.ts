// What a cell carries: it finds its engine and lets that show the turn.
interface Given {
  model: { get(name: string): unknown };
  el: HTMLElement;
  signal: AbortSignal;
  host?: {
    getWidget(ref: string): Promise<{ exports: { mountTurn: (...given: unknown[]) => void } }>;
  };
}

export default {
  async render({ model, el, signal, host }: Given) {
    try {
      const engine = await host!.getWidget(`anywidget:${model.get("engine_id")}`);
      engine.exports.mountTurn(el, model.get("turn_id"), model.get("start"), signal);
    } catch {
      el.textContent = String(model.get("title"));
    }
  },
};
