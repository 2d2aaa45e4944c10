// Builds the bundle that the Python package carries. `--out FOLDER` puts it elsewhere, `--watch` goes on.
import { readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import * as esbuild from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const given = process.argv.indexOf("--out");
const outdir =
  given > 0 ? process.argv[given + 1] : join(here, "..", "yiem_nb", "widget", "static");
const LIMIT = 450_000;

/** Temml's own minified file is a fifth smaller than what esbuild makes of its module. */
const small = {
  name: "temml",
  setup(build) {
    build.onLoad({ filter: /temml\.mjs$/ }, ({ path }) => ({
      contents: `${readFileSync(path.replace(/mjs$/, "min.js"), "utf8")}\nexport default temml;`,
    }));
  },
};

const options = {
  absWorkingDir: here,
  entryPoints: ["src/widget.ts", "src/turn.ts", "src/widget.css"],
  outdir,
  bundle: true,
  minify: true,
  format: "esm",
  target: "es2022",
  charset: "utf8",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "none",
  logLevel: "warning",
  plugins: [small],
};

if (process.argv.includes("--watch")) {
  await (await esbuild.context(options)).watch();
} else {
  await esbuild.build(options);
  const size = statSync(join(outdir, "widget.js")).size;
  console.log(`widget.js: ${size} of ${LIMIT} bytes`);
  if (size > LIMIT) process.exit(1);
}
