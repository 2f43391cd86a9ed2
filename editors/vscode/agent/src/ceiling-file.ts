import { createHash } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import type { Ceiling, RemoteName } from './consent.ts';

/**
 * The file that says what the programs of all windows on a remote may lend at most: the keys that were there
 * when the person consented. The programs follow it while they run, and lend nothing without it.
 */
export class CeilingFile implements Ceiling {
  readonly #storage: string;
  readonly #remote: RemoteName;
  readonly #write: (file: string) => Promise<unknown>;
  #file: string | undefined;

  /** `storage` is kept across windows; `write` puts what could be lent now into a file. */
  constructor(storage: string, remote: RemoteName, write: (file: string) => Promise<unknown>) {
    this.#storage = storage;
    this.#remote = remote;
    this.#write = write;
  }

  /** The file's path. Its folder is open to this user alone. */
  get path(): string {
    this.#file ??= path.join(this.#folder(), `ceiling-${hashOf(this.#remote.name)}.json`);
    return this.#file;
  }

  async raise(): Promise<void> {
    await this.#write(this.path);
  }

  remove(): void {
    rmSync(this.path, { force: true });
  }

  /** Removes what belongs to this window alone. */
  dispose(): void {
    if (this.#file && !this.#remote.isCertain) {
      rmSync(path.dirname(this.#file), { recursive: true, force: true });
    }
  }

  #folder(): string {
    if (!this.#remote.isCertain) {
      return mkdtempSync(path.join(tmpdir(), 'keybridge-'));
    }
    mkdirSync(this.#storage, { recursive: true, mode: 0o700 });
    return this.#storage;
  }
}

function hashOf(name: string): string {
  return createHash('sha256').update(name).digest('hex').slice(0, 32);
}
