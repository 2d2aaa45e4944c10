import { describe, expect, it } from "vitest";
import payloads from "../../tests/payloads.json";
import { MarkdownStream } from "../src/markdown/stream";

const TAGS = new Set(
  `P BR HR H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE EM STRONG DEL TABLE THEAD TBODY TR TH TD A IMG VAR DIV SPAN BUTTON
   math mrow mi mo mn ms mtext mspace mstyle merror mpadded mphantom mfrac msqrt mroot msub msup msubsup munder mover
   munderover mmultiscripts mprescripts mtable mtr mtd menclose`.split(/\s+/),
);
const ATTRIBUTES =
  /^(?:href|src|alt|title|start|align|colspan|rowspan|rel|target|dir|class|type|tabindex)$/;
const ON_MATH =
  /^(?:display|mathvariant|stretchy|fence|separator|form|lspace|rspace|width|height|depth|voffset|minsize|maxsize|symmetric|linethickness|accent|accentunder|movablelimits|displaystyle|scriptlevel|columnalign|rowspacing|columnspacing|columnlines|rowlines|mathcolor|mathbackground|mathsize|largeop|notation|style|xmlns|side)$/;

function drawn(text: string): HTMLElement {
  const root = document.createElement("div");
  const stream = new MarkdownStream(root);
  for (let at = 0; at < text.length; at += 9) {
    stream.append(text.slice(at, at + 9));
    stream.draw();
    expect(offences(root)).toEqual([]);
  }
  stream.finish();
  expect(offences(root)).toEqual([]);
  return root;
}

function offences(root: HTMLElement): string[] {
  const found: string[] = [];
  for (const element of root.querySelectorAll("*")) {
    if (!TAGS.has(element.tagName)) found.push(element.outerHTML);
    const math = element.namespaceURI?.endsWith("MathML");
    for (const { name, value } of element.attributes) {
      const known = ATTRIBUTES.test(name) || (math && ON_MATH.test(name));
      if (!known || !isHarmless(name, value, math === true)) found.push(`${name}=${value}`);
    }
  }
  return found;
}

function isHarmless(name: string, value: string, math: boolean): boolean {
  if (name === "href") return /^(?:https?:\/\/[^/]|mailto:.)/i.test(value);
  if (name === "src") return /^data:image\/(?:png|jpeg|gif|webp);base64,/.test(value);
  if (name === "class" && !math) return /^(?:yiem-[\w -]+|hljs-[\w -]+)$/.test(value);
  return name !== "style" || !/url|position/i.test(value);
}

describe("what a model writes", () => {
  it("has no element, attribute or address that is not of our choosing", () => {
    for (const text of [...payloads.scripts, ...payloads.exfiltration]) drawn(text);
  });

  it("links to the web and to mail alone", () => {
    for (const url of payloads.addresses) {
      for (const text of [
        `[x](${url})`,
        `[x](<${url}>)`,
        `<${url}>`,
        `[x][r]\n\n[r]: ${url}`,
        `![x](${url})`,
      ]) {
        drawn(text);
      }
    }
  });

  it("says where a picture would be", () => {
    const root = drawn("[x](https://a.example/p) <m@b.example> ![p](https://c.example/q)");
    const links = [...root.querySelectorAll("a")];
    expect(links.map((link) => link.getAttribute("href"))).toEqual([
      "https://a.example/p",
      "mailto:m@b.example",
      "https://c.example/q",
    ]);
    expect(
      links.every(
        (link) => link.rel === "noopener noreferrer nofollow" && link.target === "_blank",
      ),
    ).toBe(true);
    expect(links[2]!.textContent).toBe("image: p (c.example)");
  });

  it("shows tags as text and small pictures as pictures", () => {
    const root = drawn("a <b>c</b> ![dot](data:image/png;base64,AAAA)");
    expect(root.textContent).toContain("a <b>c</b>");
    expect(root.querySelector("img")?.getAttribute("alt")).toBe("dot");
  });

  it("sets formulas, and prices stay prices", () => {
    const root = drawn("costs $5 to $10, but $x_1$ and \\(y\\)");
    expect(root.querySelectorAll("math").length).toBe(2);
    expect(root.textContent).toContain("costs $5 to $10");
  });

  it("hides nothing in code", () => {
    const root = drawn("`rm\u202e` and\n\n```\na\u200bb\n```\n");
    expect(root.textContent).toContain("rm⟨U+202E⟩");
    expect(root.textContent).toContain("a⟨U+200B⟩b");
  });
});
