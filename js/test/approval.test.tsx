import { render } from "preact";
import { act } from "preact/test-utils";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import type { Link } from "../src/link";
import type { ToolApprovalRequestEvent } from "../src/protocol";
import { Store } from "../src/store";
import { Approval, GUARD } from "../src/view/Approval";
import type { Engine } from "../src/view/mount";

const QUESTION: ToolApprovalRequestEvent = {
  type: "tool_approval_request",
  toolCallId: "c1",
  toolName: "delete\u202e_rows",
  args: { where: "a\u200bb" },
  nonce: "n1",
  reason: "this tool asks first",
  offersSession: true,
  problem: "",
};

describe("a question", () => {
  let root: HTMLElement;
  let asked: unknown[];
  let now = 0;

  beforeEach(() => {
    root = document.createElement("div");
    document.body.append(root);
    asked = [];
    vi.spyOn(performance, "now").mockImplementation(() => now);
  });
  afterEach(() => {
    render(null, root);
    root.remove();
    vi.restoreAllMocks();
  });

  function show(question = QUESTION): void {
    const link = {
      request: (op: string, args: unknown) => {
        asked.push([op, args]);
        return Promise.resolve({ ok: true, value: null, error: "" });
      },
    } as unknown as Link;
    const engine = { id: "e", store: new Store(), link, model: {} } as unknown as Engine;
    act(() => render(<Approval question={question} engine={engine} />, root));
  }

  function click(label: string): void {
    const button = [...root.querySelectorAll("button")].find((b) => b.textContent === label)!;
    act(() => button.click());
  }

  it("takes no answer within its first moments", () => {
    now = 1000;
    show();
    now += GUARD - 1;
    click("Allow once");
    expect(asked).toEqual([]);
    now += 2;
    click("Allow once");
    expect(asked).toEqual([
      ["approve", { nonce: "n1", decision: "once", reason: "", arguments: "" }],
    ]);
  });

  it("is guarded anew when it is asked anew", () => {
    now = 1000;
    show();
    now += 10 * GUARD;
    show({ ...QUESTION, nonce: "n2", problem: "n is missing" });
    click("Allow once");
    expect(asked).toEqual([]);
    expect(root.textContent).toContain("n is missing");
  });

  it("takes one answer", () => {
    now = 1000;
    show();
    now += 2 * GUARD;
    for (let i = 0; i < 20; i++) click("Allow once");
    expect(asked.length).toBe(1);
  });

  it("hides nothing of what would run, and takes no focus", () => {
    show();
    expect(root.textContent).toContain("a⟨U+200B⟩b");
    expect(root.querySelector("[role=group]")?.getAttribute("aria-label")).toContain("⟨U+202E⟩");
    expect(root.contains(document.activeElement)).toBe(false);
  });

  it("is not offered for the session where that cannot be", () => {
    show({ ...QUESTION, offersSession: false });
    expect(root.textContent).not.toContain("session");
  });
});
