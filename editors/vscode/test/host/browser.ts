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
const SUITE_TIME = 5 * 60_000;

const PROGRAM = process.env['CHROMIUM'] ?? '/usr/bin/chromium';

/** What a suite is run with. */
export interface SuiteFiles {
  /** The folder of the extension that is being developed, as the editor sees it. */
  readonly extension: string;
  readonly suite: string;
}

/** A browser with a folder of its own, which keeps what the editor remembers. */
export class Browser {
  readonly #context: BrowserContext;

  private constructor(context: BrowserContext) {
    this.#context = context;
  }

  static async start(folder: string): Promise<Browser> {
    const context = await chromium.launchPersistentContext(folder, {
      executablePath: PROGRAM,
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
  async runSuite(url: string, opened: (page: Page) => void): Promise<boolean> {
    const page = await this.#context.newPage();
    // By then the extension host has ended, and our extensions with it.
    const exited = new Promise<number>((resolve) => {
      void page.exposeFunction('codeAutomationExit', resolve);
    });
    await page.exposeFunction('codeAutomationLog', (type: string, values: unknown[]) => {
      if (process.env['KEYBRIDGE_VERBOSE']) {
        console.log(`the editor: ${type}:`, ...values);
      }
    });
    opened(page);
    await page.goto(url);
    return passed(exited);
  }

  async close(): Promise<void> {
    await this.#context.close();
  }
}

/** The address of a window that runs a suite. */
export function suiteUrl(server: Server, folder: string, files: SuiteFiles): string {
  const at = (file: string) => `vscode-remote://127.0.0.1:${server.port}${file}`;
  const payload = JSON.stringify([
    ['extensionDevelopmentPath', at(files.extension)],
    ['extensionTestsPath', at(files.suite)],
  ]);
  return `${server.url}/?${new URLSearchParams({ folder, payload }).toString()}`;
}

async function passed(ended: Promise<number>): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<number>((resolve) => {
    timer = setTimeout(resolve, SUITE_TIME, -1);
  });
  const code = await Promise.race([ended, late]);
  clearTimeout(timer);
  if (code === -1) {
    console.error('the suite never said how it ended');
  }
  return code === 0;
}
