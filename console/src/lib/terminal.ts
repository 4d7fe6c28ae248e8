// Owns a command line's connection in the node: opened with the first command, opened again when the node has closed it. Never shows
// anything.
import { ApiError, call, get } from "./api.svelte";
import type { CommandResult, StreamPage } from "./types";

export class Terminal {
  #path: string;
  #id = "";
  /** How many connections there have been. */
  opened = 0;

  constructor(name: string) {
    this.#path = `/databases/${name}/terminals`;
  }

  /**
   * Runs a line. If the connection is gone, another is opened in logical database `db`, and the line is sent again, unless the
   * connection `held` something that the line may rely on.
   */
  async run(line: string, db: number, held: boolean): Promise<CommandResult> {
    try {
      return await this.#send(line, db);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      // The node closes a connection whose reply did not come.
      if (error.status >= 500 || error.status === 413) this.#id = "";
      if (error.status !== 404 || this.#id === "") throw error;
      this.#id = "";
      if (held) throw new ApiError(404, "gone", "The command was not run: the connection was closed, and with it the transaction, WATCH and subscriptions.", "The next command has a new one.");
      return await this.#send(line, db);
    }
  }

  async #send(line: string, db: number): Promise<CommandResult> {
    if (this.#id === "") {
      this.#id = (await call<{ id: string }>("POST", this.#path, { body: { db } })).id;
      this.opened += 1;
    }
    return call<CommandResult>("POST", `${this.#path}/${this.#id}/command`, { body: { line } });
  }

  read(after: number, signal: AbortSignal): Promise<StreamPage> {
    return get<StreamPage>(`${this.#path}/${this.#id}/stream`, { after }, signal);
  }

  async stop(): Promise<void> {
    await call("DELETE", `${this.#path}/${this.#id}/stream`);
  }

  /** The page goes. Without an answer, the node closes the connection after ten minutes, and its stream after two. */
  close(): void {
    if (this.#id === "") return;
    void call("DELETE", `${this.#path}/${this.#id}`, { keepalive: true }).catch(() => {});
    this.#id = "";
  }
}
