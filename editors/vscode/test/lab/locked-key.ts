import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { writeFile } from 'node:fs/promises';
import path from 'node:path';

import type { Lab } from './lab.ts';
import { eventually, good } from './run.ts';
import { script } from './script.ts';

/** Whose key needs a passphrase. */
export const LOCKED_USER = 'locked@keybridge.example';

/** A key of the host that needs a passphrase, and a pinentry that waits for a person who never comes. */
export class LockedKey {
  /** What a client says before it asks for a signature. */
  readonly steps: readonly string[];
  readonly #asked: string;
  #seen = 0;

  private constructor(keygrip: string, asked: string) {
    this.steps = [`SIGKEY ${keygrip}`, `SETHASH 8 ${'AB'.repeat(32)}`];
    this.#asked = asked;
  }

  static async make(lab: Lab): Promise<LockedKey> {
    const asked = path.join(lab.folder, 'asked');
    await writeFile(asked, '');
    const waits = `echo $$ >>${asked}; exec sleep 600`;
    const text = `echo OK\nwhile read -r verb rest; do\n  case $verb in GETPIN) ${waits};; esac\n  echo OK\ndone`;
    const pinentry = await script(lab.folder, 'pinentry', text);
    const { host } = lab;
    await writeFile(path.join(host.path, 'gpg-agent.conf'), `pinentry-program ${pinentry}\n`);
    const secret = ['--pinentry-mode', 'loopback', '--passphrase', 'a secret'];
    const key = ['--quick-gen-key', LOCKED_USER, 'future-default', 'default', 'never'];
    if ((await host.tryGpg(['--list-keys', LOCKED_USER])).code !== 0) {
      await host.gpg([...secret, ...key]);
    }
    // It reads its settings, and forgets what was typed.
    await good('gpgconf', ['--reload', 'gpg-agent'], { env: host.env });
    const words = ['--list-keys', '--with-keygrip', '--with-colons', LOCKED_USER];
    const listing = (await host.gpg(words)).toString();
    return new LockedKey(/^grp:.*?([0-9A-F]{40})/m.exec(listing)?.[1] ?? '', asked);
  }

  /** Waits until a person is asked once more; gives the process of the dialog. */
  async asked(): Promise<number> {
    await eventually('the pinentry is there', () => this.#dialogs().length > this.#seen);
    this.#seen += 1;
    return this.#dialogs()[this.#seen - 1] ?? 0;
  }

  /** Ends the dialog. An agent of 2.4 does it itself when the client goes; one of 2.2 doesn't. */
  async endDialog(): Promise<void> {
    const dialog = this.#dialogs()[this.#seen - 1] ?? 0;
    const isThere = (): boolean => existsSync(`/proc/${dialog}`);
    try {
      process.kill(dialog);
    } catch {
      // The agent was faster.
    }
    await eventually('the dialog is gone', () => !isThere());
  }

  /** How much an agent has open. */
  connections(agent: number): number {
    return readdirSync(`/proc/${agent}/fd`).length;
  }

  #dialogs(): number[] {
    return readFileSync(this.#asked, 'utf8').split('\n').filter(Boolean).map(Number);
  }
}
