import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vitest/config";
import { mockNode } from "./mock/plugin.ts";

// The output is committed in crates/api: `cargo install` has no Node. It must be the same bytes wherever it is built, so
// nothing of the machine or of the time may enter it.
export default defineConfig({
  plugins: [svelte(), ...(process.env.MOCK ? [mockNode()] : [])],
  build: {
    outDir: "../crates/api/console-dist",
    emptyOutDir: true,
    target: "es2022",
    // The content security policy allows neither data: URLs nor inline scripts.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 400,
  },
  server: {
    // A real node: NODE=http://127.0.0.1:8379 npm run dev
    ...(process.env.NODE ? { proxy: { "/api": process.env.NODE, "/health": process.env.NODE } } : {}),
  },
  test: { include: ["src/**/*.test.ts", "mock/**/*.test.ts"], environment: "node" },
});
