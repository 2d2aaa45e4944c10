import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { highlightAll } from "../src/markdown/highlight";
import { MarkdownStream } from "../src/markdown/stream";

function whole(text: string): string {
  const root = document.createElement("div");
  const stream = new MarkdownStream(root);
  stream.append(text);
  stream.finish();
  highlightAll();
  return root.innerHTML;
}

function pieces(parts: string[], ended = true): string {
  const root = document.createElement("div");
  const stream = new MarkdownStream(root);
  for (const part of parts) {
    stream.append(part);
    stream.draw();
  }
  if (ended) stream.finish();
  highlightAll();
  return root.innerHTML;
}

function split(text: string, size: number): string[] {
  const parts: string[] = [];
  for (let at = 0; at < text.length; at += size) parts.push(text.slice(at, at + size));
  return parts;
}

const TEXTS: Record<string, string> = {
  prose: "# One\n\nSome **bold** and `code`.\nMore.\n\nTitle\n=====\n\nlast *one*",
  fence: "````\n```py\nx\n```\n````\n\nafter\n\n```python\nfor i in x:\n\tprint(i)   \n",
  table: `| a | b |\n|---|:-:|\n${Array.from({ length: 30 }, (_, i) => `| ${i} | **x${i}** |\n`).join("")}\nafter`,
  ragged: "| a | b |\n|---|---|\n| 1 |\n| 1 | 2 | 3 |\n| `|` | x \\| y |\nplain line\n\n> quote\n",
  list: `${Array.from({ length: 30 }, (_, i) => `- item ${i}\n  more\n`).join("")}\nafter`,
  loose: `${Array.from({ length: 12 }, (_, i) => `${i + 7}. item ${i}\n${i > 8 ? "\n" : ""}`).join("")}   1. nested\n   2. two\n\nend`,
  nested: "- a\n  - b\n    - c\n- d\n\n  second\n- e\n- f\n- g\n* other list\n1. number\n",
  math: "costs $5 to $10, but $x_1$ and \\(y\\) and $$z$$\n\n$$\n\\frac{1}{2}\n$$\n\n| $x$ | $5 |\n|--|--|\n| $y$ | $6 and $7 |\n",
  links: "see [a] and [b](https://x.example/y)\n\nmore [a]\n\n[a]: https://late.example/z\n",
  escapes: "a\x1b[31mred\x1b[0m \x1b]8;;https://e.example\x07link\x1b]8;;\x07\r\nline\rover\x00",
  emoji: "👩‍👩‍👧‍👦 flags 🇵🇹 e\u0301 مرحبا `code` שלום\n\n- مرحبا\n- שלום\n",
  image: "![secret](https://evil.example/?q=1) ![ok](data:image/png;base64,AAAA)",
  cut: "an **unclosed and [text](http and `",
};

describe("a text that arrives in pieces", () => {
  for (const [name, text] of Object.entries(TEXTS)) {
    it(`shows in the end what one piece shows: ${name}`, () => {
      for (const size of [1, 3, 7, 50]) expect(pieces(split(text, size))).toBe(whole(text));
    });
  }

  it("whatever the text and wherever it is cut", () => {
    const line = fc.constantFrom(
      "- a",
      "- b **c**",
      "  deeper",
      "1. one",
      "2. two",
      "",
      "",
      "text",
      "| a | b |",
      "|---|---|",
      "| 1 | 2 |",
      "```",
      "```py",
      "~~~",
      "x = 1",
      "> quote",
      "> > more",
      "# head",
      "===",
      "---",
      "$$",
      "x^2",
      "[a]: /u",
      "[a] b",
      "    code",
      "<div>",
      "* star",
      "\ttab",
      "a $x$ b",
      "\\[",
      "\\]",
      "- [ ] task",
    );
    fc.assert(
      fc.property(
        fc.array(line, { maxLength: 25 }),
        fc.array(fc.nat(12), { minLength: 1 }),
        (lines, cuts) => {
          const text = lines.join("\n");
          const parts: string[] = [];
          for (let at = 0, n = 0; at < text.length; n++) {
            const size = cuts[n % cuts.length]! + 1;
            parts.push(text.slice(at, at + size));
            at += size;
          }
          expect(pieces(parts)).toBe(whole(text));
        },
      ),
    );
  });

  it("shows lists, tables and fences as they will be, before the end", () => {
    for (const name of ["table", "list", "nested"]) {
      const text = `${TEXTS[name]}\n\nmore\n`;
      expect(pieces(split(text, 5), false)).toBe(whole(text));
    }
  });

  it("draws what is finished once", () => {
    const root = document.createElement("div");
    const stream = new MarkdownStream(root);
    stream.append("first\n\nsecond\n\nthi");
    stream.draw();
    const kept = root.firstChild;
    stream.append("rd\n\nfourth");
    stream.draw();
    stream.finish();
    expect(root.firstChild).toBe(kept);
    expect(root.children.length).toBe(4);
  });

  it("is replaced where the kernel's text is another", () => {
    const root = document.createElement("div");
    const stream = new MarkdownStream(root);
    stream.append("a wrong\n\nstart");
    stream.draw();
    stream.finish("the right text");
    expect(root.textContent).toBe("the right text");
    expect(stream.text).toBe("the right text");
  });

  it("survives what is nested or repeated without end", () => {
    const texts = [
      ">".repeat(3000),
      "`".repeat(20_000),
      "[".repeat(5000),
      "- ".repeat(500),
      "*".repeat(5000),
      "$".repeat(5000),
      "(".repeat(5000),
      "![".repeat(3000),
      "| a ".repeat(2000),
      "\\".repeat(5000),
      "a  \n".repeat(3000),
      `${"  ".repeat(200)}- x`,
      "<".repeat(10_000),
      "#".repeat(5000),
      "_a".repeat(4000),
      "~".repeat(9000),
    ];
    for (const text of texts) {
      expect(whole(text).length).toBeGreaterThan(0);
      expect(pieces(split(text, 4000))).toBe(whole(text));
    }
  });
});
