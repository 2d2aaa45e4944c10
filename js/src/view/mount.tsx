// Where views begin: a root of our own, guarded keys, and what a click on drawn text does.
import { render } from "preact";
import type { Link, Model } from "../link";
import type { Store } from "../store";
import { insertAsCell } from "./insert";
import { guardKeys } from "./keys";
import { Panel } from "./Panel";
import { CellTurn } from "./Turn";

export interface Engine {
  readonly id: string;
  readonly store: Store;
  readonly link: Link;
  readonly model: Model;
}

/** Show the chat panel in `el` until `signal` fires. */
export function mountPanel(engine: Engine, el: HTMLElement, signal: AbortSignal): void {
  const root = makeRoot(engine, el, "yiem-panel", signal);
  render(<Panel engine={engine} />, root);
}

/** Show the running turn of a cell in `el`, from an event on. */
export function mountTurn(
  engine: Engine,
  el: HTMLElement,
  turn: string,
  from: number,
  signal: AbortSignal,
): void {
  const root = makeRoot(engine, el, "yiem-cell", signal);
  render(<CellTurn engine={engine} id={turn} from={from} />, root);
}

function makeRoot(engine: Engine, el: HTMLElement, name: string, signal: AbortSignal): HTMLElement {
  const root = document.createElement("div");
  root.className = `yiem-root ${name}`;
  root.dataset.testid = "yiem-root";
  guardKeys(root);
  root.addEventListener("click", (event) => void onClick(engine, root, event));
  el.replaceChildren(root);
  signal?.addEventListener("abort", () => {
    render(null, root);
    root.remove();
  });
  return root;
}

/** The buttons on drawn code. */
async function onClick(engine: Engine, root: HTMLElement, event: MouseEvent): Promise<void> {
  const button = (event.target as Element).closest?.("button");
  const code = button?.closest(".yiem-code")?.querySelector("code")?.textContent;
  if (!button || code === null || code === undefined) return;
  if (button.classList.contains("yiem-act-copy")) {
    flash(button, (await copy(code)) ? "Copied" : "Not copied");
  } else if (button.classList.contains("yiem-act-insert")) {
    flash(button, await insertAsCell(engine, root, code.replace(/\n$/, "")));
  }
}

/** Put `text` on the clipboard; says whether it is there. */
export async function copy(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** Say something on a button for a moment. */
export function flash(button: HTMLElement, words: string): void {
  const before = button.dataset.words ?? button.textContent ?? "";
  button.dataset.words = before;
  button.textContent = words;
  setTimeout(() => {
    button.textContent = before;
  }, 2000);
}
