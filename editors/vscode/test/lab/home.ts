import { existsSync } from 'node:fs';
import path from 'node:path';

import { type Output, good, run } from './run.ts';

/** Who the keys of the lab belong to. */
export const USER = 'Lab <lab@keybridge.example>';

/** A GnuPG home, and the programs that work on it. */
export class Home {
  readonly path: string;
  readonly env: NodeJS.ProcessEnv;

  constructor(folder: string, home: string, tmp: string) {
    this.path = folder;
    this.env = {
      PATH: process.env['PATH'],
      HOME: home,
      TMPDIR: tmp,
      LC_ALL: 'C',
      GNUPGHOME: folder,
    };
  }

  /** Where gpg looks for its agent: by its own word. */
  async socket(): Promise<string> {
    return this.#place('agent-socket');
  }

  /** The socket of the agent that is meant to be lent. */
  async extraSocket(): Promise<string> {
    return this.#place('agent-extra-socket');
  }

  /** gpg, which has nobody to ask, and has to succeed. */
  async gpg(words: readonly string[], input?: string | Buffer): Promise<Buffer> {
    return good('gpg', ['--batch', '--no-tty', '--yes', ...words], {
      env: this.env,
      ...(input === undefined ? {} : { input }),
    });
  }

  /** gpg, whatever comes of it. */
  async tryGpg(
    words: readonly string[],
    input: string | Buffer = '',
    signal?: AbortSignal,
  ): Promise<Output> {
    return run('gpg', ['--batch', '--no-tty', '--yes', ...words], {
      env: this.env,
      input,
      ...(signal ? { signal } : {}),
    });
  }

  /** A key that signs, with a subkey that decrypts. */
  async makeKey(user = USER): Promise<void> {
    const words = [
      '--passphrase',
      '',
      '--quick-gen-key',
      user,
      'future-default',
      'default',
      'never',
    ];
    await this.gpg(words);
  }

  /** The fingerprints of all keys. */
  async fingerprints(): Promise<string[]> {
    const lines = await this.#listing();
    return lines.flatMap((line, at) =>
      line.startsWith('pub:') ? [lines[at + 1]?.split(':')[9] ?? ''] : [],
    );
  }

  /** The fingerprint of the first key. */
  async fingerprint(): Promise<string> {
    return (await this.fingerprints())[0] ?? '';
  }

  /** The keygrips of all keys and subkeys. */
  async keygrips(): Promise<string[]> {
    const lines = await this.#listing();
    return lines.filter((line) => line.startsWith('grp:')).map((line) => line.split(':')[9] ?? '');
  }

  /** The process of the agent of this home. */
  async agentPid(): Promise<number> {
    const words = ['--no-autostart', 'GETINFO pid', '/bye'];
    const said = (await good('gpg-connect-agent', words, { env: this.env })).toString();
    return Number(/^D (\d+)/.exec(said)?.[1]);
  }

  /** A file in the home. */
  has(name: string): boolean {
    return existsSync(path.join(this.path, name));
  }

  /** Ends every daemon of this home. */
  async endAgents(): Promise<void> {
    await run('gpgconf', ['--kill', 'all'], { env: this.env });
  }

  async #place(name: string): Promise<string> {
    const said = await good('gpgconf', ['--list-dirs', name], { env: this.env });
    return said.toString().trim();
  }

  async #listing(): Promise<string[]> {
    const words = ['--list-keys', '--with-keygrip', '--with-colons'];
    return (await this.gpg(words))
      .toString()
      .split('\n')
      .filter((line) => !line.startsWith('sub:'));
  }
}
