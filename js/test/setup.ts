import fc from "fast-check";

// The same examples each time; the full run tries new ones.
const full = (globalThis as { process?: { env: Record<string, string> } }).process?.env
  .YIEM_TESTS_FULL;
fc.configureGlobal(full ? { numRuns: 2000 } : { seed: 20261201, numRuns: 250 });
