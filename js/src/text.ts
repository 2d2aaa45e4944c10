// The twin of yiem_nb/render/text.py: characters that are not what they seem.

const ESCAPES =
  /\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\|$)|\x1b[PX^_][^\x1b]*(?:\x1b\\|$)|\x1b[ -/]*[0-~]?/g;
const CONTROLS = /[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]/g;
const HIDDEN =
  /[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\u{e0000}-\u{e0fff}]/gu;
const OPEN =
  /(?:\r|[\ud800-\udbff]|\x1b(?:\[[0-?]{0,64}[ -/]{0,8}|\][^\x07\x1b]{0,2000}\x1b?|[PX^_][^\x1b]{0,2000}\x1b?|[ -/]{0,8}))$/;

/** Drop terminal escapes and control characters; keep line ends and tabs. */
export function cleaned(text: string): string {
  const plain = text.includes("\x1b") ? text.replace(ESCAPES, "") : text;
  return plain.replace(/\r\n?/g, "\n").replace(CONTROLS, "");
}

/** Part a growing text from an end that `cleaned` cannot judge yet. */
export function settled(text: string): [string, string] {
  const from = Math.max(text.length - 2100, 0);
  const found = OPEN.exec(text.slice(from));
  if (!found) return [text, ""];
  const at = from + found.index;
  return [text.slice(0, at), text.slice(at)];
}

/** Write every character that hides, reorders or controls text as its code point. */
export function visible(text: string): string {
  return text.replace(CONTROLS, spell).replace(HIDDEN, spell);
}

function spell(character: string): string {
  return `⟨U+${character.codePointAt(0)!.toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

/** How long a text is, for people. */
export function sizeOf(text: string): string {
  const lines = text.split("\n").length;
  const count =
    text.length === 1 ? "1 character" : `${text.length.toLocaleString("en")} characters`;
  return lines === 1 ? count : `${lines.toLocaleString("en")} lines, ${count}`;
}

/** Keep head and tail of a long text and say what is missing. */
export function clipped(text: string, limit = 4000): string {
  if (text.length <= limit) return text;
  const head = Math.floor((limit * 3) / 4);
  const tail = Math.floor(limit / 4);
  const left = (text.length - head - tail).toLocaleString("en");
  return `${text.slice(0, head)}\n… ${left} characters are left out here …\n${text.slice(-tail)}`;
}

/** `0.1 s`, `4 s`, `2 min 5 s`. */
export function seconds(value: number): string {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${value.toFixed(0)} s`;
  return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
}

/** `$0.0004`, `$1.25`. */
export function money(dollars: number): string {
  if (dollars >= 0.995) return `$${dollars.toFixed(2)}`;
  return dollars >= 0.0001 ? `$${Number(dollars.toPrecision(2))}` : "< $0.0001";
}

/** Code points of a text: what the kernel counts in. */
export function points(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (unit < 0xdc00 || unit > 0xdfff) count++;
    else if (i === 0 || (text.charCodeAt(i - 1) & 0xfc00) !== 0xd800) count++;
  }
  return count;
}

/** The text without its first `count` code points. */
export function withoutPoints(text: string, count: number): string {
  let at = 0;
  for (let left = count; left > 0 && at < text.length; left--) {
    at += text.codePointAt(at)! > 0xffff ? 2 : 1;
  }
  return text.slice(at);
}
