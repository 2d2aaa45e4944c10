// The notebook around us, where the host's widget manager knows one. Nothing documents that it does, so each
// part is looked for before it is used.
import type { Engine } from "./mount";

interface Cell {
  readonly id?: string;
  readonly executionCount?: number | null;
}

export interface Notebook {
  readonly sharedModel: { insertCell(index: number, cell: object): unknown };
  readonly cells: { readonly length: number; get(index: number): Cell };
}

/** The model of the notebook that shows this engine. */
export function notebookOf(engine: Engine): Notebook | null {
  const manager = engine.model.widget_manager as
    | { context?: { model?: Partial<Notebook> } }
    | undefined;
  const model = manager?.context?.model;
  const works =
    typeof model?.sharedModel?.insertCell === "function" && typeof model.cells?.length === "number";
  return works ? (model as Notebook) : null;
}

/** Where a cell stands, and the number of its last run. */
export function findCell(engine: Engine, id: string): { index: number; run: number | null } | null {
  const cells = notebookOf(engine)?.cells;
  for (let index = 0; cells && index < cells.length; index++) {
    const cell = cells.get(index);
    if (cell?.id === id) return { index, run: cell.executionCount ?? null };
  }
  return null;
}

/** Scroll to the cell at `index`. */
export function showCell(root: Element | null, index: number): void {
  const notebook = root?.closest(".jp-Notebook");
  const cell =
    notebook?.querySelector(`[data-windowed-list-index="${index}"]`) ??
    notebook?.querySelectorAll(".jp-Cell")[index];
  cell?.scrollIntoView({ block: "center" });
}
