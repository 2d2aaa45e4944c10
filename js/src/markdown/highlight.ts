// Code in colour: only when it is whole, a piece at a time when the page is idle.
import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import c from "highlight.js/lib/languages/c";
import diff from "highlight.js/lib/languages/diff";
import go from "highlight.js/lib/languages/go";
import ini from "highlight.js/lib/languages/ini";
import java from "highlight.js/lib/languages/java";
import javascript from "highlight.js/lib/languages/javascript";
import json from "highlight.js/lib/languages/json";
import julia from "highlight.js/lib/languages/julia";
import latex from "highlight.js/lib/languages/latex";
import markdown from "highlight.js/lib/languages/markdown";
import python from "highlight.js/lib/languages/python";
import r from "highlight.js/lib/languages/r";
import rust from "highlight.js/lib/languages/rust";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";
import xml from "highlight.js/lib/languages/xml";
import yaml from "highlight.js/lib/languages/yaml";
import { sanitizeCode } from "./sanitize";

const LANGUAGES = {
  bash,
  c,
  diff,
  go,
  ini,
  java,
  javascript,
  json,
  julia,
  latex,
  markdown,
  python,
  r,
  rust,
  sql,
  typescript,
  xml,
  yaml,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);
hljs.registerAliases(["cpp", "c++"], { languageName: "c" });
hljs.registerAliases(["py", "python3", "ipython", "pycon"], { languageName: "python" });

const MAX_CHARACTERS = 64_000;
const waiting: HTMLElement[] = [];
const languages = new WeakMap<HTMLElement, string>();
let scheduled = false;

/** Colour `code` when there is time. */
export function highlightLater(code: HTMLElement, language: string): void {
  if (!hljs.getLanguage(language) || (code.textContent ?? "").length > MAX_CHARACTERS) return;
  languages.set(code, language);
  waiting.push(code);
  schedule();
}

/** Colour all that waits, now. */
export function highlightAll(): void {
  for (const code of waiting.splice(0)) colour(code);
}

/** Code as coloured nodes, at once; for short code. */
export function coloured(code: string, language: string): DocumentFragment {
  return sanitizeCode(hljs.highlight(code, { language, ignoreIllegals: true }).value);
}

function schedule(): void {
  if (scheduled) return;
  scheduled = true;
  const idle = globalThis.requestIdleCallback ?? ((run: () => void) => setTimeout(run, 50));
  idle(() => {
    scheduled = false;
    const code = waiting.shift();
    if (code?.isConnected) colour(code);
    if (waiting.length) schedule();
  });
}

function colour(code: HTMLElement): void {
  const language = languages.get(code);
  if (language) code.replaceChildren(coloured(code.textContent ?? "", language));
}
