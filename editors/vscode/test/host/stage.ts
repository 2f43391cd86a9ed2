import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import path from 'node:path';

import { build } from 'esbuild';
import type { Page } from 'playwright-core';

import { Lab } from '../lab/lab.ts';
import { SshAgent } from '../lab/ssh-agent.ts';
import { Browser, suiteUrl } from './browser.ts';
import { Driver } from './driver.ts';
import { EditorWindow } from './editor-window.ts';
import { Server } from './server.ts';

/** What a stage has besides. */
export interface Setting {
  /** Is called with the folder of the extensions, when they are there. */
  readonly installed?: (folder: string) => Promise<void>;
  /** Settings of the person. */
  readonly settings?: Readonly<Record<string, unknown>>;
}

/** An editor's server with extensions, a browser, and a lab of its own. */
export class Stage {
  readonly lab: Lab;
  readonly #folder: string;
  readonly #server: Server;
  readonly #browser: Browser;
  readonly #driver: Driver;
  readonly #agent: SshAgent;

  private constructor(
    lab: Lab,
    parts: { folder: string; server: Server; browser: Browser; driver: string; agent: SshAgent },
  ) {
    this.lab = lab;
    this.#folder = parts.folder;
    this.#server = parts.server;
    this.#browser = parts.browser;
    this.#agent = parts.agent;
    this.#driver = new Driver(parts.driver, () => this.open());
  }

  /** Sets everything up. */
  static async set(
    host: string,
    extensions: readonly string[],
    { installed = () => Promise.resolve(), settings = {} }: Setting = {},
  ): Promise<Stage> {
    const lab = await Lab.make();
    const agent = await SshAgent.start(lab.folder);
    const folder = path.join(lab.folder, 'ws');
    await mkdir(folder);
    const driver = path.join(lab.folder, 'driver');
    const server = await Server.start(lab, host, {
      extensions,
      installed,
      settings: { ...usualSettings(lab), ...settings },
      env: {
        KEYBRIDGE_LAB: lab.folder,
        KEYBRIDGE_DRIVER: driver,
        KEYBRIDGE_TESTS: path.join(import.meta.dirname, '..'),
        KEYBRIDGE_SSH_KEY: agent.publicKey,
        SSH_AUTH_SOCK: agent.socket,
      },
    });
    const browser = await Browser.start(path.join(lab.folder, 'browser'));
    return new Stage(lab, { folder, server, browser, driver, agent });
  }

  /** Opens a window as a person does. */
  async open(): Promise<EditorWindow> {
    return new EditorWindow(await this.#browser.open(this.#server, this.#folder));
  }

  /** Runs a suite in the extension host of a new window; fails if one of its tests does. */
  async runSuite(suite: string): Promise<void> {
    const url = await this.#suiteUrl(suite);
    const opened = (page: Page): void => {
      this.#driver.use(page);
    };
    const passed = await this.#browser.runSuite(url, opened);
    assert.ok(passed, 'a test of the suite failed');
  }

  /** Makes a suite into one file, and says where a window runs it. */
  async #suiteUrl(suite: string): Promise<string> {
    const here = import.meta.dirname;
    const bundle = path.join(here, 'dist', `${suite}.cjs`);
    await build({
      entryPoints: [path.join(here, 'suites', `${suite}.ts`)],
      outfile: bundle,
      bundle: true,
      platform: 'node',
      format: 'cjs',
      external: ['vscode', 'mocha'],
      logLevel: 'warning',
    });
    const files = { extension: path.join(here, 'extension'), suite: bundle };
    return suiteUrl(this.#server, this.#folder, files);
  }

  /** Ends and removes everything. */
  async clear(): Promise<void> {
    this.#driver.close();
    await this.#browser.close();
    await this.#server.stop();
    await this.#agent.stop();
    await this.lab.clear();
  }
}

function usualSettings(lab: Lab): Record<string, unknown> {
  const programs = process.env['KEYBRIDGE_PROGRAMS'];
  return {
    // In a browser there is no other machine: both run in the one extension host.
    'remote.extensionKind': { 'keybridge.keybridge-agent': ['workspace'] },
    'keybridge.gnupgHome': lab.host.path,
    // ssh has its home by the system's word alone; the suite of both lanes gives it another one.
    'keybridge.lanes': ['gpg'],
    ...(programs
      ? {
          'keybridge.program': path.join(programs, 'keybridge'),
          'keybridge.remote.program': path.join(programs, 'keybridge-remote'),
        }
      : {}),
  };
}
