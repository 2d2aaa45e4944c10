// Code from an answer becomes a cell: through the notebook where the host shows it, else by the kernel, else
// by the clipboard. Says which.
import { copy, type Engine } from "./mount";

interface Notebook {
  sharedModel: { insertCell(index: number, cell: object): unknown };
  cells: { length: number };
}

/** Insert `code` below the cell that shows `root`. */
export async function insertAsCell(
  engine: Engine,
  root: HTMLElement,
  code: string,
): Promise<string> {
  const notebook = notebookOf(engine);
  if (notebook) {
    const index = Math.min(cellIndex(root) + 1 || notebook.cells.length, notebook.cells.length);
    try {
      notebook.sharedModel.insertCell(index, { cell_type: "code", source: code, metadata: {} });
      return "Inserted below";
    } catch (error) {
      console.warn("yiem_nb: the notebook took no cell", error);
    }
  }
  const answer = await engine.link.request("insert", { code });
  if (answer.ok) return "Inserted below";
  return (await copy(code)) ? "Copied instead" : "Not inserted";
}

/** The notebook, if this host's widget manager knows one; nothing documents that it does. */
function notebookOf(engine: Engine): Notebook | null {
  const manager = engine.model.widget_manager as
    | { context?: { model?: Partial<Notebook> } }
    | undefined;
  const model = manager?.context?.model;
  const works =
    typeof model?.sharedModel?.insertCell === "function" && typeof model.cells?.length === "number";
  return works ? (model as Notebook) : null;
}

function cellIndex(root: HTMLElement): number {
  const cell = root.closest<HTMLElement>(".jp-Cell");
  if (!cell) return -1;
  const said = cell.dataset.windowedListIndex;
  if (said !== undefined) return Number(said);
  return [...(cell.parentElement?.querySelectorAll(":scope > .jp-Cell") ?? [])].indexOf(cell);
}
