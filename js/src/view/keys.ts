// Letters typed here are ours: in a notebook b, a, dd or 0 0 add and delete cells and restart the kernel.

const OURS = new Set(["Enter", "Escape", "ArrowUp", "ArrowDown", "ArrowLeft", "ArrowRight", "F6"]);

/** Keep keys from the notebook, but for those with Control or Meta that are nobody's but the host's. */
export function guardKeys(root: HTMLElement): void {
  root.setAttribute("data-lm-suppress-shortcuts", "true");
  root.addEventListener("keydown", (event) => {
    const command = event.ctrlKey || event.metaKey;
    if (!command || OURS.has(event.key)) event.stopPropagation();
  });
  for (const kind of ["paste", "copy", "cut"]) {
    root.addEventListener(kind, (event) => event.stopPropagation());
  }
}

/** What each focusable element needs beside the root's guard: hosts look at the element itself first. */
export const HOLDS_KEYS = { "data-lm-suppress-shortcuts": "true" } as const;

/** Whether this key belongs to an input method that is composing. */
export function isComposing(event: KeyboardEvent): boolean {
  return event.isComposing || event.keyCode === 229;
}
