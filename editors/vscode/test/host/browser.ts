import path from 'node:path';

import { type BrowserContext, type Page, chromium } from 'playwright-core';

import { PATIENCE } from '../lab/run.ts';
import type { Server } from './server.ts';

/** What the browser is told, so that it keeps to itself. */
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
];

/** How long a whole suite may take. */
const SUITE_TIME = 10 * 60_000;

/** A browser with a folder of its own. */
export class Browser {
  readonly #context: BrowserContext;

  private constructor(context: BrowserContext) {
    this.#context = context;
  }

  static async start(folder: string): Promise<Browser> {
    const context = await chromium.launchPersistentContext(path.join(folder, 'browser'), {
      executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
      headless: true,
      args: FLAGS,
      viewport: { width: 1100, height: 620 },
    });
    context.setDefaultTimeout(PATIENCE);
    return new Browser(context);
  }

  /** Opens a window of the editor on a folder. */
  async open(server: Server, folder: string): Promise<Page> {
    const page = await this.#context.newPage();
    await page.goto(`${server.url}/?folder=${encodeURIComponent(folder)}`);
    await page.locator('.monaco-workbench').waitFor();
    return page;
  }

  /** Opens a window that runs a suite in the extension host; says whether all of it passed. */
  async runSuite(
    server: Server,
    folder: string,
    { extension, suite }: { extension: string; suite: string },
    opened: (page: Page) => void,
  ): Promise<boolean> {
    const page = await this.#context.newPage();
    const ended = new Promise<number>((resolve) => {
      void page.exposeFunction('codeAutomationExit', resolve);
    });
    await page.exposeFunction('codeAutomationLog', (type: string, values: unknown[]) => {
      const text = typeof values[0] === 'string' ? values[0] : '';
      if (text.startsWith(MARK)) {
        console.log(text.slice(MARK.length));
      } else if (process.env['KEYBRIDGE_VERBOSE']) {
        console.log(`the editor: ${type}:`, ...values);
      }
    });
    opened(page);
    const at = (file: string) => `vscode-remote://127.0.0.1:${server.port}${file}`;
    const payload = JSON.stringify([
      ['extensionDevelopmentPath', at(extension)],
      ['extensionTestsPath', at(suite)],
    ]);
    const query = new URLSearchParams({ folder, payload });
    await page.goto(`${server.url}/?${query.toString()}`);
    const late = new Promise<number>((resolve) => {
      setTimeout(resolve, SUITE_TIME, -1).unref();
    });
    const code = await Promise.race([ended, late]);
    if (code === -1) {
      console.error('the suite never said how it ended');
    }
    return code === 0;
  }

  async close(): Promise<void> {
    await this.#context.close();
  }
}

/** Stands before what a suite writes. */
export const MARK = 'keybridge-test: ';
