// A growing text whose finished blocks are drawn once. When the text is whole the page shows exactly what
// drawing it in one go would show.
import type { Token, Tokens } from "marked";
import { cleaned, settled } from "../text";
import { blocks, isTooDeep, type Links, plain, renderBlock } from "./render";

interface Block {
  raw: string;
  nodes: ChildNode[];
}

/** A block that is drawn piece by piece while it is open. `take` returns what is left once it is over. */
interface OpenPart {
  take(text: string): string | null;
  /** Its whole source so far. */
  source(): string;
}

const LONG_PARAGRAPH = 6000;

export class MarkdownStream {
  private done: Block[] = [];
  private tail = "";
  private tailNodes: ChildNode[] = [];
  private pending = "";
  private raw: string[] = [];
  private links: Links = {};
  private open: OpenPart | null = null;

  constructor(private readonly root: HTMLElement) {}

  /** All text so far. */
  get text(): string {
    if (this.raw.length > 1) this.raw = [this.raw.join("")];
    return this.raw[0] ?? "";
  }

  /** Take the next piece; nothing is drawn yet. */
  append(piece: string): void {
    this.raw.push(piece);
    this.pending += piece;
  }

  /** Draw what is new. */
  draw(): void {
    const [ready, held] = settled(this.pending);
    this.pending = held;
    let fresh = cleaned(ready);
    if (!fresh) return;
    if (this.open) {
      const rest = this.open.take(fresh);
      if (rest === null) return;
      this.settleOpen();
      fresh = rest;
      this.tail = "";
    }
    this.tail += fresh;
    this.drawTail();
  }

  /** Begin anew with another text. */
  replace(text: string): void {
    this.root.replaceChildren();
    this.done = [];
    this.tailNodes = [];
    this.raw = [];
    this.tail = this.pending = "";
    this.links = {};
    this.open = null;
    this.append(text);
    this.draw();
  }

  /** The text is whole: draw what differs from drawing it in one go. `text` replaces all if it is another. */
  finish(text = this.text): void {
    this.raw = [text];
    this.pending = "";
    this.open = null;
    const whole = cleaned(text);
    const links: Links = {};
    const wanted = isTooDeep(whole) ? null : this.lex(whole, links);
    if (!wanted) {
      this.done = [];
      this.root.replaceChildren(plain(whole));
      return;
    }
    const hasLinks = Object.keys(links).length > 0;
    const old = this.done;
    this.done = [];
    let place: ChildNode | null = this.root.firstChild;
    let number = 0;
    for (const token of wanted) {
      if (token.type === "space" || token.type === "def") continue;
      const drawn = old[number++];
      const same = drawn && drawn.raw === token.raw && !(hasLinks && token.raw.includes("["));
      if (same && drawn.nodes[0] === place) {
        this.done.push(drawn);
        place = drawn.nodes.at(-1)?.nextSibling ?? null;
        continue;
      }
      const nodes = [...renderBlock(token.raw, links).childNodes];
      for (const node of nodes) this.root.insertBefore(node, place);
      // Only now: where a block was drawn in its place the page keeps its height.
      if (drawn && drawn.nodes[0] === place) {
        place = drawn.nodes.at(-1)?.nextSibling ?? null;
        for (const node of drawn.nodes) node.remove();
      }
      this.done.push({ raw: token.raw, nodes });
    }
    while (place) {
      const next: ChildNode | null = place.nextSibling;
      place.remove();
      place = next;
    }
    this.tail = "";
    this.tailNodes = [];
    this.links = links;
  }

  private lex(text: string, links: Links): Token[] | null {
    try {
      return blocks(text, links);
    } catch {
      return null; // nested beyond what the parser can read
    }
  }

  private drawTail(): void {
    const links = { ...this.links };
    const tokens = isTooDeep(this.tail) ? null : this.lex(this.tail, links);
    if (!tokens) {
      this.showTail(plain(this.tail));
      return;
    }
    const lastLine = this.tail.lastIndexOf("\n") + 1;
    let offset = 0;
    let begin = 0;
    let cut = 0;
    tokens.forEach((token, index) => {
      if (token.type !== "space" && offset < lastLine && index > 0) {
        begin = index;
        cut = offset;
      }
      offset += token.raw.length;
    });
    if (offset !== this.tail.length) begin = cut = 0;
    if (begin > 0) {
      this.removeTail();
      for (const token of tokens.slice(0, begin)) {
        if (token.type === "def") this.links = { ...this.links, ...pick(links, token) };
        else if (token.type !== "space") this.commit(token.raw, renderBlock(token.raw, this.links));
      }
      this.tail = this.tail.slice(cut);
    }
    const rest = tokens.slice(begin).filter((token) => token.type !== "space");
    const first = rest[0];
    if (first && this.enter(first, rest.length)) return;
    const fragment = document.createDocumentFragment();
    for (const token of rest) {
      if (token.type !== "def") fragment.append(renderBlock(token.raw, links));
    }
    this.showTail(fragment);
  }

  /** Draw the open block piece by piece from now on, if it is of a kind that grows long. */
  private enter(token: Token, count: number): boolean {
    const source = this.tail;
    let part: OpenPart | null = null;
    const host = document.createDocumentFragment();
    if (token.type === "code") part = OpenFence.from(source, host);
    else if (token.type === "table" && count === 1) part = OpenTable.from(source, host, this.links);
    else if (token.type === "list" && (token as Tokens.List).items.length > 3) {
      part = OpenList.from(source, host, this.links);
    } else if (token.type === "paragraph" && count === 1 && source.length > LONG_PARAGRAPH) {
      part = new OpenParagraph(host, this.links, source);
    }
    if (!part) return false;
    this.showTail(host);
    this.open = part;
    return true;
  }

  private settleOpen(): void {
    const raw = this.open!.source();
    const keeps = !(this.open instanceof OpenParagraph || this.open instanceof OpenFence);
    this.open = null;
    if (keeps) {
      this.done.push({ raw, nodes: this.tailNodes });
      this.tailNodes = [];
    } else {
      this.removeTail();
      this.commit(raw, renderBlock(raw, this.links));
    }
  }

  private commit(raw: string, fragment: DocumentFragment): void {
    const nodes = [...fragment.childNodes];
    this.root.append(fragment);
    this.done.push({ raw, nodes });
  }

  private showTail(fragment: DocumentFragment): void {
    const nodes = [...fragment.childNodes];
    this.root.append(fragment);
    this.removeTail();
    this.tailNodes = nodes;
  }

  private removeTail(): void {
    for (const node of this.tailNodes) node.remove();
    this.tailNodes = [];
  }
}

function pick(links: Links, token: Token): Links {
  const tag = (token as Tokens.Def).tag;
  return links[tag] ? { [tag]: links[tag]! } : {};
}

/** Lines that are whole, and the one that is not. */
function wholeLines(text: string): [string, string] {
  const end = text.lastIndexOf("\n") + 1;
  return [text.slice(0, end), text.slice(end)];
}

/** A code fence: its text grows. */
class OpenFence implements OpenPart {
  private rest = "";
  private shown = document.createTextNode("");
  private parts: string[] = [];

  private constructor(
    private readonly opening: string,
    private readonly closing: RegExp,
    private readonly indent: number,
  ) {}

  static from(source: string, host: DocumentFragment): OpenFence | null {
    const found = /^( {0,3})(`{3,}|~{3,})[^\n]*\n/.exec(source);
    if (!found) return null;
    const mark = found[2]!;
    const closing = new RegExp(`^ {0,3}\\${mark[0]}{${mark.length},}[ \\t]*$`);
    const part = new OpenFence(found[0], closing, found[1]!.length);
    if (part.take(source.slice(found[0].length)) !== null) return null;
    const frame = renderBlock(`${found[0]}\n`, {});
    frame.querySelector("code")?.replaceChildren(part.shown);
    host.append(frame);
    return part;
  }

  take(text: string): string | null {
    const [lines, rest] = wholeLines(this.rest + text);
    this.rest = rest;
    let drawn = "";
    let start = 0;
    while (start < lines.length) {
      const end = lines.indexOf("\n", start) + 1;
      const line = lines.slice(start, end);
      if (this.closing.test(line.slice(0, -1))) {
        this.parts.push(lines.slice(0, end));
        const left = lines.slice(end) + this.rest;
        this.rest = "";
        return left;
      }
      drawn += this.indent ? line.replace(new RegExp(`^ {0,${this.indent}}`), "") : line;
      start = end;
    }
    this.parts.push(lines);
    this.shown.appendData(drawn);
    return null;
  }

  source(): string {
    return this.opening + this.parts.join("") + this.rest;
  }
}

/** A table: rows are added. */
class OpenTable implements OpenPart {
  private rest = "";
  private rows: string[] = [];

  private constructor(
    private readonly head: string,
    private readonly body: Element,
    private readonly links: Links,
  ) {}

  static from(source: string, host: DocumentFragment, links: Links): OpenTable | null {
    const found = /^[^\n]+\n[^\n]+\n/.exec(source);
    if (!found) return null;
    const drawn = renderBlock(`${found[0]}| |\n`, links);
    const body = drawn.querySelector("tbody");
    if (!body) return null;
    const part = new OpenTable(found[0], body, links);
    body.replaceChildren();
    if (part.take(source.slice(found[0].length)) !== null || part.rows.length === 0) return null;
    host.append(drawn);
    return part;
  }

  take(text: string): string | null {
    const [lines, rest] = wholeLines(this.rest + text);
    this.rest = rest;
    if (!lines) return null;
    const tokens = blocks(this.head + lines, { ...this.links });
    const table = tokens[0]!;
    const rows = table.raw.slice(this.head.length);
    const goesOn = tokens.length === 1 && table.raw.length === this.head.length + lines.length;
    const own = goesOn ? lines : lines.slice(0, Math.max(rows.length, 0));
    const drawn = renderBlock(this.head + own, this.links).querySelector("tbody");
    if (drawn) this.body.append(...drawn.childNodes);
    this.rows.push(own);
    if (goesOn && !/\n[ \t]*\n$/.test(table.raw)) return null;
    const left = lines.slice(own.length) + this.rest;
    this.rest = "";
    return left;
  }

  source(): string {
    return this.head + this.rows.join("") + this.rest;
  }
}

/** A list: items are added; the last one is drawn anew until another begins. */
class OpenList implements OpenPart {
  private doneRaw: string[] = [];
  private tail = "";
  private tailItems: Element[] = [];
  private loose = false;

  private constructor(
    private readonly list: Element,
    private readonly links: Links,
  ) {}

  static from(source: string, host: DocumentFragment, links: Links): OpenList | null {
    const list = renderBlock(source, links).firstElementChild;
    if (!list || !/^[UO]L$/.test(list.tagName)) return null;
    list.replaceChildren();
    host.append(list);
    const part = new OpenList(list, links);
    return part.take(source) === null ? part : null;
  }

  take(text: string): string | null {
    this.tail += text;
    const tokens = blocks(this.tail, { ...this.links });
    const list = tokens[0] as Tokens.List;
    const ends = endsBefore(tokens, this.tail.lastIndexOf("\n") + 1);
    if (list.loose && !this.loose) this.loosen();
    for (const item of this.tailItems) item.remove();
    const drawn = this.items(list.raw);
    this.list.append(...drawn);
    if (ends) {
      const left = this.tail.slice(list.raw.length);
      this.doneRaw.push(list.raw);
      this.tail = "";
      return left;
    }
    const settledItems = list.items.slice(0, -1);
    const raw = settledItems.map((item) => item.raw).join("");
    this.tailItems = drawn.slice(settledItems.length);
    this.doneRaw.push(raw);
    this.tail = this.tail.slice(raw.length);
    return null;
  }

  private items(raw: string): Element[] {
    const drawn = renderBlock(raw, this.links, (tokens) => {
      if (this.loose) makeLoose(tokens[0] as Tokens.List);
    });
    return [...(drawn.firstElementChild?.children ?? [])];
  }

  /** A blank line between two items: all of them are drawn once more, as paragraphs. */
  private loosen(): void {
    this.loose = true;
    const before = this.doneRaw.join("");
    this.tailItems = [];
    this.list.replaceChildren(...(before ? this.items(before) : []));
  }

  source(): string {
    return this.doneRaw.join("") + this.tail;
  }
}

/** Whether a block begins after the first one, in a line that is whole. */
function endsBefore(tokens: Token[], lastLine: number): boolean {
  let offset = tokens[0]?.raw.length ?? 0;
  for (const token of tokens.slice(1)) {
    if (token.type !== "space" && offset < lastLine) return true;
    offset += token.raw.length;
  }
  return false;
}

function makeLoose(list: Tokens.List | undefined): void {
  if (list?.type !== "list") return;
  for (const item of list.items) {
    item.loose = true;
    for (const token of item.tokens) {
      if (token.type === "text") (token as { type: string }).type = "paragraph";
    }
  }
}

/** A paragraph that does not end: sentences are added; it is drawn whole when it is over. */
class OpenParagraph implements OpenPart {
  private raw: string[] = [];
  private rest: string;
  private readonly paragraph = document.createElement("p");
  private readonly growing = document.createTextNode("");

  constructor(
    host: DocumentFragment,
    private readonly links: Links,
    source: string,
  ) {
    this.rest = source;
    this.paragraph.append(this.growing);
    host.append(this.paragraph);
    this.draw();
  }

  take(text: string): string | null {
    this.rest += text;
    const tokens = blocks(this.rest, { ...this.links });
    if (endsBefore(tokens, this.rest.lastIndexOf("\n") + 1)) {
      const raw = tokens[0]!.raw;
      const left = this.rest.slice(raw.length);
      this.rest = raw;
      return left;
    }
    this.draw();
    return null;
  }

  private draw(): void {
    while (this.rest.length > 2000) {
      const cut = this.rest.slice(0, 2000).search(/[.\s] (?=[A-Za-z][^\n]{0,200}$)/);
      const end = cut > 0 ? cut + 2 : 2000;
      const piece = this.rest.slice(0, end);
      this.raw.push(piece);
      this.rest = this.rest.slice(end);
      const drawn = renderBlock(piece, this.links).firstElementChild;
      if (drawn?.tagName === "P") this.growing.before(...drawn.childNodes, " ");
      else this.growing.before(piece);
    }
    this.growing.data = this.rest;
  }

  source(): string {
    return this.raw.join("") + this.rest;
  }
}
