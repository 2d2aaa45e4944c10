// One block of Markdown → nodes. What is drawn depends on the block's source and the link definitions alone.
import { Lexer, Marked, Parser, type Token, type TokensList } from "marked";
import { visible } from "../text";
import { highlightLater } from "./highlight";
import { blockMathEnd, mathEnd, setMath } from "./math";
import { isSafeImage, isSafeLink, sanitize } from "./sanitize";

export type Links = TokensList["links"];

const MAX_NESTING = 32;
const TOO_DEEP = new RegExp(
  `^[ \\t]*(?:(?:>|[-*+]|\\d{1,9}[.)])[ \\t]*){${MAX_NESTING}}|^[ \\t]{${MAX_NESTING * 4}}`,
  "m",
);

const marked = new Marked();
marked.use({
  gfm: true,
  extensions: [
    {
      name: "mathBlock",
      level: "block",
      start: (text) => {
        const at = text.search(/(?:^|\n)(?:\$\$|\\\[)/);
        return at < 0 ? undefined : at;
      },
      tokenizer: (text) => {
        const end = blockMathEnd(text);
        return end ? { type: "mathBlock", raw: text.slice(0, end) } : undefined;
      },
      renderer: (token) => `<p><var>${escaped(token.raw.trim())}</var></p>\n`,
    },
    {
      name: "math",
      level: "inline",
      start: (text) => {
        const at = text.search(/\$|\\[([]/);
        return at < 0 ? undefined : at;
      },
      tokenizer: (text) => {
        const end = mathEnd(text);
        return end ? { type: "math", raw: text.slice(0, end) } : undefined;
      },
      renderer: (token) => `<var>${escaped(token.raw)}</var>`,
    },
  ],
  // Tags are text, and an address is a link only where it was written as one, as in the static rendering.
  tokenizer: { html: () => undefined, tag: () => undefined, url: () => undefined },
  renderer: {
    heading({ tokens, depth }) {
      const level = Math.min(depth + 2, 6); // a message does not own the page's outline
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>\n`;
    },
    code: ({ text }) => `<pre><code>${escaped(visible(text.replace(/\n$/, "")))}\n</code></pre>\n`,
    codespan: ({ text }) => `<code>${escaped(visible(text))}</code>`,
    html: ({ text }) => escaped(text),
    checkbox: ({ checked }) => (checked ? "[x] " : "[ ] "),
    link({ href, tokens }) {
      const words = this.parser.parseInline(tokens);
      return isSafeLink(href) ? `<a href="${escaped(href)}">${words}</a>` : `<a>${words}</a>`;
    },
    image: ({ href, text }) => {
      if (isSafeImage(href)) return `<img src="${href}" alt="${escaped(text)}">`;
      const safe = isSafeLink(href);
      const host = (safe && new URL(href).host) || "elsewhere";
      const label = escaped(text ? `image: ${text} (${host})` : `image (${host})`);
      return safe ? `<a href="${escaped(href)}">${label}</a>` : label;
    },
  },
});

export function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/** The blocks of `text`, without what is inside them. Adds to `links` what `text` defines. */
export function blocks(text: string, links: Links): Token[] {
  const lexer = new Lexer(marked.defaults);
  Object.assign(lexer.tokens.links, links);
  const found = lexer.blockTokens(text, []);
  Object.assign(links, lexer.tokens.links);
  return found;
}

/** Whether `text` nests so deep that it is shown as it stands. */
export function isTooDeep(text: string): boolean {
  return TOO_DEEP.test(text);
}

/** Draw one block. */
export function renderBlock(
  raw: string,
  links: Links,
  force?: (tokens: Token[]) => void,
): DocumentFragment {
  if (isTooDeep(raw)) return plain(raw);
  try {
    const lexer = new Lexer(marked.defaults);
    Object.assign(lexer.tokens.links, links);
    const tokens = lexer.lex(raw);
    force?.(tokens);
    const fragment = sanitize(new Parser(marked.defaults).parse(tokens));
    decorate(fragment, tokens);
    return fragment;
  } catch {
    return plain(raw);
  }
}

/** Text as it stands. */
export function plain(text: string): DocumentFragment {
  const fragment = document.createDocumentFragment();
  const pre = document.createElement("pre");
  pre.className = "yiem-plain";
  pre.textContent = visible(text);
  fragment.append(pre);
  return fragment;
}

/** What we add ourselves, after the sanitiser: formulas, code frames, direction. */
function decorate(fragment: DocumentFragment, tokens: Token[]): void {
  dropBlanks(fragment);
  setMath(fragment);
  const named = languagesOf(tokens);
  fragment.querySelectorAll("pre").forEach((pre, index) => {
    frameCode(pre, named[index] ?? "");
  });
  for (const block of fragment.querySelectorAll("p, li, h3, h4, h5, h6, blockquote, td, th")) {
    block.setAttribute("dir", "auto");
  }
  for (const table of fragment.querySelectorAll("table")) {
    const scroller = document.createElement("div");
    scroller.className = "yiem-scroll";
    table.replaceWith(scroller);
    scroller.append(table);
  }
}

const HOLDERS = /^(?:#document-fragment|UL|OL|LI|TABLE|THEAD|TBODY|TR|BLOCKQUOTE)$/;

/** Between blocks line ends say nothing; without them drawing piece by piece gives the same page. */
function dropBlanks(parent: ParentNode & Node): void {
  for (const node of [...parent.childNodes]) {
    if (node.nodeType === 3) {
      if (HOLDERS.test(parent.nodeName) && !node.nodeValue?.trim()) node.remove();
    } else if (HOLDERS.test(node.nodeName)) dropBlanks(node as Element);
  }
}

function languagesOf(tokens: Token[]): string[] {
  const found: string[] = [];
  marked.walkTokens(tokens, (token) => {
    if (token.type === "code") found.push((token.lang ?? "").trim().split(/\s/)[0]!.toLowerCase());
  });
  return found;
}

/** Put code into a frame with its language and buttons; what they do is the root's business. */
export function frameCode(pre: HTMLPreElement, language: string): void {
  const code = pre.querySelector("code");
  if (!code) return;
  const frame = document.createElement("div");
  frame.className = "yiem-code";
  const bar = document.createElement("div");
  bar.className = "yiem-code-bar";
  bar.append(button("copy", "Copy"));
  if (/^(?:|py|python3?|ipython)$/.test(language)) bar.append(button("insert", "Insert as cell"));
  pre.replaceWith(frame);
  pre.dir = "ltr";
  pre.tabIndex = 0;
  frame.append(bar, pre);
  highlightLater(code as HTMLElement, language || "python");
}

function button(act: string, label: string): HTMLButtonElement {
  const made = document.createElement("button");
  made.type = "button";
  made.className = `yiem-quiet yiem-act-${act}`;
  made.textContent = label;
  return made;
}
