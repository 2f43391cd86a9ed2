import { readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';

import type { Lab } from './lab.ts';
import { script } from './script.ts';

/** A program that notes its process id and then is the real one. */
export class Noted {
  readonly file: string;
  readonly #pids: string;

  private constructor(file: string, pids: string) {
    this.file = file;
    this.#pids = pids;
  }

  static async make(lab: Lab, name: string, real: string): Promise<Noted> {
    const pids = path.join(lab.folder, `${name}.pids`);
    await writeFile(pids, '');
    // Short runs that only say something don't count.
    const text = `case "$1 $2" in *--raise) ;; serve*|link*|rpc*) echo $$ >>${pids};; esac\nexec ${real} "$@"`;
    return new Noted(await script(lab.folder, name, text), pids);
  }

  /** The processes so far. */
  async pids(): Promise<number[]> {
    const lines = (await readFile(this.#pids, 'utf8')).split('\n');
    return lines.filter(Boolean).map(Number);
  }

  /** Kills the last one. */
  async kill(): Promise<void> {
    const last = (await this.pids()).at(-1);
    if (last === undefined) {
      throw new Error(`${this.file} was never started`);
    }
    process.kill(last, 'SIGKILL');
  }
}
