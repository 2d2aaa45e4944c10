// Formulas: found by Pandoc's rule, set by Temml as MathML.
import temml from "temml";
import { sanitizeMath } from "./sanitize";

const MAX_LINES = 60;
const MAX_SOURCE = 10_000;
const cache = new Map<string, DocumentFragment>();

/** Where the formula that begins at the start of `text` ends, or 0. */
export function mathEnd(text: string): number {
  if (text.startsWith("$$")) return closing(text, "$$");
  if (text.startsWith("$")) return dollarEnd(text);
  if (text.startsWith("\\(")) return closing(text, "\\)");
  return text.startsWith("\\[") ? closing(text, "\\]") : 0;
}

function closing(text: string, mark: string): number {
  const at = text.indexOf(mark, 2);
  if (at <= 2) return 0;
  const blank = text.indexOf("\n\n");
  return blank >= 0 && blank < at ? 0 : at + 2;
}

function dollarEnd(text: string): number {
  if (text.length < 2 || /\s/.test(text[1]!)) return 0;
  for (let at = text.indexOf("$", 1); at > 0; at = text.indexOf("$", at + 1)) {
    const before = text[at - 1]!;
    if (before === "\\") continue;
    if (text.slice(0, at).includes("\n\n") || /\s/.test(before)) return 0;
    return /\d/.test(text[at + 1] ?? "") ? 0 : at + 1;
  }
  return 0;
}

/** Length of a formula that opens a line and ends one, or 0. */
export function blockMathEnd(text: string): number {
  const mark = text.startsWith("$$") ? "$$" : text.startsWith("\\[") ? "\\]" : "";
  if (!mark) return 0;
  let start = 0;
  for (let line = 0; line < MAX_LINES; line++) {
    const newline = text.indexOf("\n", start);
    const end = newline < 0 ? text.length : newline;
    const words = text.slice(start, end).trimEnd();
    if (line > 0 && !words) return 0;
    if (words.endsWith(mark) && (line > 0 || words.length > 3)) return end + (newline < 0 ? 0 : 1);
    if (newline < 0) return 0;
    start = newline + 1;
  }
  return 0;
}

/** Put formulas in the place of their sources. */
export function setMath(root: ParentNode): void {
  for (const place of [...root.querySelectorAll("var")]) {
    const source = place.textContent ?? "";
    const formula = typeset(source);
    if (formula) {
      place.replaceChildren(formula);
      place.setAttribute("title", source);
      if (/^(?:\$\$|\\\[)/.test(source)) place.className = "yiem-display";
    }
  }
}

function typeset(source: string): DocumentFragment | null {
  if (source.length > MAX_SOURCE) return null;
  let formula = cache.get(source);
  if (!formula) {
    const wide = /^(?:\$\$|\\\[)/.test(source);
    const tex = source.startsWith("$") && !wide ? source.slice(1, -1) : source.slice(2, -2);
    try {
      const options = {
        displayMode: wide,
        trust: false,
        throwOnError: true,
        maxExpand: 200,
        maxSize: [50, 100],
      };
      formula = sanitizeMath(temml.renderToString(tex, options as never));
    } catch {
      return null; // the source stays: it says more than an error
    }
    if (cache.size > 500) cache.clear();
    cache.set(source, formula);
  }
  return formula.cloneNode(true) as DocumentFragment;
}
