// The one allow-list. Whatever is drawn as HTML passes here last; nothing of it loads, runs or submits.
import DOMPurify, { type Config } from "dompurify";

const TAGS =
  "p br hr h3 h4 h5 h6 ul ol li blockquote pre code em strong del table thead tbody tr th td a img kbd sub sup var".split(
    " ",
  );
const CONFIG: Config = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ["href", "src", "alt", "title", "start", "align", "colspan", "rowspan"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ALLOW_UNKNOWN_PROTOCOLS: false,
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|data:image\/)/i,
  RETURN_DOM_FRAGMENT: true,
};
const CODE: Config = {
  ALLOWED_TAGS: ["span"],
  ALLOWED_ATTR: ["class"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const MATH: Config = {
  USE_PROFILES: { mathMl: true },
  FORBID_ATTR: ["href", "xlink:href", "src", "id", "name", "actiontype", "altimg", "definitionurl"],
  FORBID_TAGS: ["maction", "a", "img", "style", "annotation-xml", "semantics"],
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const DATA_IMAGE = /^data:image\/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]+$/;
const MAX_IMAGE = 2_800_000;

/** Whether a click may go there: http or https with a host, or mail. */
export function isSafeLink(url: string): boolean {
  if (!/^(?:https?:\/\/[^/]|mailto:.)/i.test(url)) return false;
  try {
    const parts = new URL(url);
    return parts.protocol === "mailto:" ? parts.pathname !== "" : parts.hostname !== "";
  } catch {
    return false;
  }
}

/** Whether it may be shown: a small raster image that is its own data. */
export function isSafeImage(url: string): boolean {
  return url.length <= MAX_IMAGE && DATA_IMAGE.test(url);
}

// An instance of our own: another extension's hooks and settings do not reach it.
const purify = DOMPurify(window);

purify.addHook("afterSanitizeAttributes", (node) => {
  // In the inert document still: an image that must not load never meets the page.
  if (node.nodeName === "IMG" && !isSafeImage(node.getAttribute("src") ?? "")) {
    node.removeAttribute("src");
  }
  if (node.nodeName === "A") {
    const href = node.getAttribute("href") ?? "";
    if (isSafeLink(href)) {
      node.setAttribute("rel", "noopener noreferrer nofollow");
      node.setAttribute("target", "_blank");
      node.setAttribute("title", href);
    } else node.removeAttribute("href");
  }
  for (const name of ["style", "class"]) {
    const value = node.getAttribute(name);
    if (value && /url|expression|position|[<>\\@]/i.test(value)) node.removeAttribute(name);
  }
});

/** Model text as HTML → nodes. */
export function sanitize(html: string): DocumentFragment {
  return purify.sanitize(html, CONFIG) as unknown as DocumentFragment;
}

/** Highlighted code → nodes. */
export function sanitizeCode(html: string): DocumentFragment {
  return purify.sanitize(html, CODE) as unknown as DocumentFragment;
}

/** MathML → nodes. */
export function sanitizeMath(html: string): DocumentFragment {
  return purify.sanitize(html, MATH) as unknown as DocumentFragment;
}
