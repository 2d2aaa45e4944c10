// Opens a session with pi's SessionManager and says what that cost.
//   node pi_open.mjs PACKAGE_ENTRY FILE
const [entry, file] = process.argv.slice(2);
const { SessionManager } = await import(entry);
const memory = process.memoryUsage().rss;
const cpu = process.cpuUsage();
const session = SessionManager.open(file);
const used = process.cpuUsage(cpu);
console.log(
  JSON.stringify({
    entries: session.getEntries().length,
    cpu: (used.user + used.system) / 1e6,
    rss: process.memoryUsage().rss - memory,
  }),
);
