import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, open, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';

import type { Lab } from '../lab/lab.ts';
import { eventually, good } from '../lab/run.ts';

/** What an editor's server is set up with. */
export interface Setup {
  /** The files of the extensions to install. */
  readonly extensions: readonly string[];
  /** Is called with the folder of the extensions, when they are there. */
  readonly installed: (folder: string) => Promise<void>;
  /** The settings of the person. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** What its extension host finds in its environment. */
  readonly env: Readonly<Record<string, string>>;
}

/** The server of the editor, with a real extension host. It has folders of its own, in a lab. */
export class Server {
  readonly url: string;
  readonly port: number;
  readonly #process: ChildProcess;

  private constructor(port: number, process: ChildProcess) {
    this.port = port;
    this.url = `http://127.0.0.1:${port}`;
    this.#process = process;
  }

  /** Installs the extensions and starts the server; `host` is the folder that code-server is in. */
  static async start(lab: Lab, host: string, setup: Setup): Promise<Server> {
    const main = path.join(host, 'node_modules/code-server/lib/vscode/out/server-main.js');
    const folder = path.join(lab.folder, 'server');
    await mkdir(path.join(folder, 'data/User'), { recursive: true });
    await writeFile(
      path.join(folder, 'data/User/settings.json'),
      JSON.stringify({ ...QUIET, ...setup.settings }),
    );
    const env = {
      ...lab.target.env,
      ...lab.hostEnvironment,
      ...setup.env,
      GNUPGHOME: lab.target.path,
    };
    const folders = [
      `--server-data-dir=${folder}`,
      `--user-data-dir=${folder}/data`,
      `--extensions-dir=${folder}/extensions`,
    ];
    const installs = setup.extensions.map((file) => `--install-extension=${file}`);
    await good(process.execPath, [main, ...installs, '--force', ...folders], { env });
    await setup.installed(path.join(folder, 'extensions'));
    const port = await freePort();
    const log = await open(path.join(folder, 'log'), 'a');
    const words = [
      main,
      '--host=127.0.0.1',
      `--port=${port}`,
      '--without-connection-token',
      '--accept-server-license-terms',
      '--telemetry-level=off',
      // What goes to the browser is packed otherwise, in the extension host: on loopback that only takes
      // time, and where the editor is a program there is no such thing.
      '--disable-websocket-compression',
      '--disable-workspace-trust',
      '--enable-smoke-test-driver',
      ...folders,
    ];
    const child = spawn(process.execPath, words, {
      env,
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
    });
    await log.close();
    const server = new Server(port, child);
    await eventually('the server answers', async () => {
      const answer = await fetch(`${server.url}/version`).catch(() => undefined);
      return answer?.ok ?? false;
    });
    return server;
  }

  /** Ends the server and all that it has started. */
  async stop(): Promise<void> {
    const { pid } = this.#process;
    if (pid === undefined || this.#process.exitCode !== null) {
      return;
    }
    const ended = once(this.#process, 'exit');
    // It leads a group of its own.
    process.kill(-pid, 'SIGTERM');
    const timer = setTimeout(() => process.kill(-pid, 'SIGKILL'), 10_000);
    await ended;
    clearTimeout(timer);
  }
}

/** Nothing that asks, updates or tells anybody. */
const QUIET = {
  'workbench.startupEditor': 'none',
  'workbench.enableExperiments': false,
  'extensions.autoCheckUpdates': false,
  'extensions.autoUpdate': false,
  'extensions.ignoreRecommendations': true,
  'update.mode': 'none',
  'telemetry.telemetryLevel': 'off',
  'git.enabled': false,
  'chat.disableAIFeatures': true,
  'workbench.secondarySideBar.defaultVisibility': 'hidden',
  'security.workspace.trust.enabled': false,
  'workbench.colorTheme': 'Default Light Modern',
};

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  await once(server, 'close');
  if (address === null || typeof address === 'string') {
    throw new Error('no port is free');
  }
  return address.port;
}
