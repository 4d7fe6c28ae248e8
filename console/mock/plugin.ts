// The mock node behind Vite's servers: MOCK=1 npm run dev, or npm run preview for what was built, with the real policy.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Plugin } from "vite";
import { answer } from "./node.ts";

const POLICY =
  "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

async function serve(request: IncomingMessage, response: ServerResponse, next: () => void): Promise<void> {
  const url = new URL(request.url ?? "/", "http://mock");
  if (url.pathname.startsWith("/health/")) {
    response.end("ok");
    return;
  }
  if (!url.pathname.startsWith("/api/v1")) return next();
  let text = "";
  for await (const part of request) text += String(part);
  const { status, body } = answer(request.method ?? "GET", url.pathname.slice(7), url.searchParams, text ? JSON.parse(text) : {});
  response.statusCode = status;
  response.setHeader("content-type", "application/json");
  response.end(body === undefined ? undefined : JSON.stringify(body));
}

export function mockNode(): Plugin {
  return {
    name: "mock-node",
    configureServer(server) {
      server.middlewares.use((request, response, next) => void serve(request, response, next));
    },
    configurePreviewServer(server) {
      server.middlewares.use((request, response, next) => {
        response.setHeader("content-security-policy", POLICY);
        void serve(request, response, next);
      });
    },
  };
}
