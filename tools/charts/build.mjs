// Packs entry.js with the versions of package-lock.json into src/refprotofl/report/page/assets:
//   cd tools/charts && npm ci --ignore-scripts && npm run build
// The same lock gives the same bytes; tests/report/page/test_page_file.py compares them with SHA256SUMS.
import { createHash } from "node:crypto";
import { existsSync, readFileSync, readdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
const assets = join(here, "../../src/refprotofl/report/page/assets");

const made = await build({
  absWorkingDir: here,
  entryPoints: ["entry.js"],
  bundle: true,
  minify: true,
  format: "iife",
  globalName: "charts",
  target: "es2022",
  legalComments: "none",
  charset: "ascii",
  metafile: true,
  write: false,
});

// A line that a browser would take for the end of the script must not be in it.
const code = made.outputFiles[0].text.replaceAll(/<\/(?=script)/gi, "<\\/").replaceAll("<!--", "<\\!--");

const packages = new Set();
for (const path of Object.keys(made.metafile.inputs)) {
  const named = path.match(/^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//);
  if (named) packages.add(named[1]);
}
const licences = [...packages].sort().map((folder) => {
  const about = JSON.parse(readFileSync(join(here, folder, "package.json"), "utf8"));
  const file = readdirSync(join(here, folder)).find((name) => /^licen[cs]e/i.test(name));
  if (!file) throw new Error(`${about.name} has no licence file`);
  const text = readFileSync(join(here, folder, file), "utf8").trim();
  return `${about.name} ${about.version} (${about.license})\n\n${text}\n`;
});

const files = {
  "charts.js": code,
  "charts.LICENSES.txt": licences.join(`\n${"-".repeat(80)}\n\n`),
};
let sums = "";
for (const [name, text] of Object.entries(files)) {
  writeFileSync(join(assets, name), text);
  sums += `${createHash("sha256").update(text).digest("hex")}  ${name}\n`;
  console.log(`${name}: ${text.length} characters`);
}
writeFileSync(join(assets, "SHA256SUMS"), sums);
if (!existsSync(join(assets, "charts.js"))) throw new Error("nothing was written");
