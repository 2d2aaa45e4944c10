// Code from an answer becomes a cell: through the notebook where the host shows it, else by the kernel, else
// by the clipboard. Says which.
import { notebookOf } from "./host";
import { copy, type Engine } from "./mount";

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

function cellIndex(root: HTMLElement): number {
  const cell = root.closest<HTMLElement>(".jp-Cell");
  if (!cell) return -1;
  const said = cell.dataset.windowedListIndex;
  if (said !== undefined) return Number(said);
  return [...(cell.parentElement?.querySelectorAll(":scope > .jp-Cell") ?? [])].indexOf(cell);
}
