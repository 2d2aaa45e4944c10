// Opens a session with pi's own SessionManager and says what it sees.
//   node pi_read.mjs PACKAGE_ENTRY FILE [append]
// With "append" it also says two messages of its own, which go below the leaf.
const [entry, file, append] = process.argv.slice(2);
const { SessionManager } = await import(entry);
const session = SessionManager.open(file);

const text = (message) => {
  if (message.summary !== undefined) return message.summary;
  if (typeof message.content === "string") return message.content;
  return message.content.map((block) => block.text ?? block.thinking ?? block.name ?? "").join("|");
};

const seen = () => {
  const context = session.buildSessionContext();
  const labels = {};
  for (const { id } of session.getEntries()) {
    const label = session.getLabel(id);
    if (label) labels[id] = label;
  }
  return {
    leaf: session.getLeafId(),
    path: session.getBranch().map(({ id, type }) => [id, type]),
    messages: context.messages.map((message) => [message.role, text(message)]),
    model: context.model,
    thinkingLevel: context.thinkingLevel,
    labels,
    name: session.getSessionName?.() ?? null,
    entries: session.getEntries().length,
  };
};

if (append) {
  session.appendMessage({
    role: "user",
    content: [{ type: "text", text: "from pi \u2028 \u{1F600} \ud800" }],
    timestamp: 1,
  });
  session.appendMessage({
    role: "assistant",
    content: [{ type: "text", text: "pi answers" }],
    api: "openai-completions",
    provider: "pi",
    model: "pi-1",
    usage: {
      input: 1, output: 2, cacheRead: 0, cacheWrite: 0, totalTokens: 3,
      cost: { input: 1e-7, output: 0, cacheRead: 0, cacheWrite: 0, total: 3e-6 },
    },
    stopReason: "stop",
    timestamp: 2,
  });
}
console.log(JSON.stringify(seen()));
