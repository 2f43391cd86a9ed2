import {
  type Started,
  environment,
  findProgram,
  outputOf,
  startProgram,
} from '../../channel/program.ts';
import { versionIn } from '../../channel/versions.ts';
import type { Host } from './bridge.ts';
import { type Settings, asOptions } from './settings.ts';

/** `keybridge` on this machine. */
export class HostProgram implements Host {
  readonly extension: string;
  readonly #target: string;
  readonly #extensionFolder: string;
  readonly #settings: () => Settings;

  constructor(
    extension: string,
    target: string,
    extensionFolder: string,
    settings: () => Settings,
  ) {
    this.extension = extension;
    this.#target = target;
    this.#extensionFolder = extensionFolder;
    this.#settings = settings;
  }

  async version(): Promise<string> {
    const said = await outputOf(await this.#file(), ['--version'], await this.#environment());
    return versionIn(said);
  }

  async startLink(replace: boolean, ceiling: string): Promise<Started> {
    const more = replace ? ['--replace'] : [];
    return this.#start(['link', ...more, ...this.#words(ceiling)]);
  }

  /** Starts `keybridge rpc`. */
  async startRpc(ceiling: string): Promise<Started> {
    return this.#start(['rpc', ...this.#words(ceiling)]);
  }

  /** Writes to the file `ceiling` what can be lent now. */
  async raise(ceiling: string): Promise<void> {
    await outputOf(
      await this.#file(),
      ['rpc', '--raise', ...this.#words(ceiling)],
      await this.#environment(),
    );
  }

  #words(ceiling: string): string[] {
    return [`--target=${this.#target}`, `--ceiling=${ceiling}`, ...asOptions(this.#settings())];
  }

  async #start(words: readonly string[]): Promise<Started> {
    const [file, env] = [await this.#file(), await this.#environment()];
    return startProgram(file, words, env);
  }

  async #file(): Promise<string> {
    const place = {
      name: 'keybridge',
      chosen: this.#settings().program,
      setting: 'keybridge.program',
      extensionFolder: this.#extensionFolder,
    };
    return findProgram(place, process.env['PATH'] ?? '');
  }

  async #environment(): Promise<NodeJS.ProcessEnv> {
    return environment(this.#settings().gnupgFolder, 'keybridge.gnupgFolder', undefined);
  }
}
