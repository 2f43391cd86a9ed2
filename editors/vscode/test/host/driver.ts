import { type Server as NetServer, createServer } from 'node:net';
import { createInterface } from 'node:readline';

import type { Page } from 'playwright-core';

import { EditorWindow } from './editor-window.ts';

/** What a suite, which runs in the extension host, can have done. */
export type Wish =
  | { readonly wish: 'say'; readonly text: string }
  | { readonly wish: 'click'; readonly label: string }
  | { readonly wish: 'dismiss' }
  | { readonly wish: 'see'; readonly text: string }
  | { readonly wish: 'status-item' }
  | { readonly wish: 'open-window' }
  | { readonly wish: 'close-window' }
  | { readonly wish: 'status-item-there' };

/** Grants the wishes of a suite, over a socket: a line of JSON each way. */
export class Driver {
  readonly socket: string;
  readonly #server: NetServer;
  readonly #openWindow: () => Promise<EditorWindow>;
  #window: EditorWindow | undefined;
  #other: EditorWindow | undefined;

  constructor(socket: string, openWindow: () => Promise<EditorWindow>) {
    this.socket = socket;
    this.#openWindow = openWindow;
    this.#server = createServer((connection) => {
      createInterface(connection).on('line', (line) => {
        void this.#grant(JSON.parse(line) as Wish).then(
          (result) => connection.write(`${JSON.stringify({ result: result ?? null })}\n`),
          (error: unknown) => connection.write(`${JSON.stringify({ error: String(error) })}\n`),
        );
      });
    }).listen(socket);
  }

  /** The page of the suite that has wishes from now on. */
  use(page: Page): void {
    this.#window = new EditorWindow(page);
  }

  close(): void {
    this.#server.close();
  }

  async #grant(wish: Wish): Promise<unknown> {
    switch (wish.wish) {
      case 'say':
        console.log(wish.text);
        return undefined;
      case 'click':
        return this.#window?.click(wish.label);
      case 'dismiss':
        return this.#window?.dismiss();
      case 'see':
        return this.#window?.see(wish.text);
      case 'status-item':
        return this.#window?.statusItem();
      case 'status-item-there':
        return this.#other?.statusItem();
      case 'open-window':
        this.#other = await this.#openWindow();
        return undefined;
      case 'close-window':
        await this.#other?.close();
        this.#other = undefined;
        return undefined;
    }
  }
}
