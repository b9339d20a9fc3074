import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join, relative } from "node:path";
import { defaultClientConditions, type Plugin } from "vite";
import { defineConfig } from "vitest/config";

const LESSONS = ["en", "pt"].flatMap((language) =>
  readdirSync(join("lessons", language)).map((file) => join("lessons", language, file)),
);

/** Compresses a file as xz by Python, which whoever builds this has: Node cannot. */
const packed = (file: string): Uint8Array => {
  const code = `import lzma, sys
filters = [{"id": lzma.FILTER_LZMA2, "preset": 9, "dict_size": 1 << 24}]
sys.stdout.buffer.write(lzma.compress(sys.stdin.buffer.read(), check=lzma.CHECK_CRC32, filters=filters))`;
  return execFileSync(process.env.PYTHON ?? "python3", ["-c", code], { input: readFileSync(file), maxBuffer: 2 ** 26 });
};

/** ONNX Runtime's own files; the program is compressed. */
function engineFiles(): Plugin {
  return {
    name: "engine-files",
    generateBundle() {
      const path = "node_modules/onnxruntime-web/dist/ort-wasm-simd-threaded.jspi";
      const emit = (fileName: string, source: Uint8Array) => this.emitFile({ type: "asset", fileName, source });
      emit("engine/library.mjs", readFileSync(`${path}.mjs`));
      emit("engine/library.bin", packed(`${path}.wasm`));
    },
  };
}

/** What all pages have in common: a policy by which nothing is loaded from elsewhere, and the colours before the first picture. */
function shell(): Plugin {
  const theme = `try { document.documentElement.dataset.theme = localStorage.getItem("theme") ?? ""; } catch {}`;
  const hash = createHash("sha256").update(theme).digest("base64");
  const policy = [
    "default-src 'self'",
    `script-src 'self' 'wasm-unsafe-eval' 'sha256-${hash}'`,
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "worker-src 'self'",
    "base-uri 'self'",
  ].join("; ");
  return {
    name: "shell",
    transformIndexHtml: {
      order: "pre",
      handler: (html, { filename }) => {
        const root = relative(join(filename, ".."), process.cwd());
        const head = [
          `<meta charset="utf-8">`,
          `<meta name="viewport" content="width=device-width, initial-scale=1">`,
          `<meta http-equiv="Content-Security-Policy" content="${policy}">`,
          `<base href="${root ? `${root}/` : "./"}">`,
          `<link rel="icon" href="data:,">`,
          `<script>${theme}</script>`,
        ];
        return html.replace("<head>", `<head>\n${head.join("\n")}`);
      },
    },
  };
}

export default defineConfig({
  base: "./",
  resolve: { conditions: ["onnxruntime-web-use-extern-wasm", ...defaultClientConditions] },
  plugins: [shell(), engineFiles()],
  build: {
    target: "es2022",
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    rolldownOptions: { input: ["index.html", ...LESSONS] },
  },
  test: { include: ["tests/*.test.ts"] },
});
