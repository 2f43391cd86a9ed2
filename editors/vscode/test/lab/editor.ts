import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';

import type { BridgeState } from '../../agent/src/bridge.ts';
import { COMPATIBLE_PREFIXES, compatibleHandlers } from '../../agent/src/compatible.ts';
import { CeilingFile } from '../../agent/src/ceiling-file.ts';
import { type Answer, Consent } from '../../agent/src/consent.ts';
import { bytesHandlers, interfaceHandlers } from '../../agent/src/handlers.ts';
import { remoteBy } from '../../agent/src/remote.ts';
import { Window } from '../../agent/src/window.ts';
import type { Execute } from '../../channel/crossing.ts';
import { AGENT, REQUEST } from '../../channel/names.ts';
import { environment, outputOf, startProgram } from '../../channel/program.ts';
import { agentBy } from '../../request/src/helper.ts';
import { Requests, handlersOf } from '../../request/src/requests.ts';
import { programs } from './lab.ts';

/** What a test can choose about a window. */
export interface Choices {
  readonly answer?: Answer | Promise<Answer>;
  /** The keys that a person picks of those that are offered. */
  readonly pick?: (offered: readonly string[]) => string[] | undefined;
  readonly options?: readonly string[];
  /** What the windows of a person share; each has its own otherwise. */
  readonly profile?: Profile;
  readonly host?: string;
  readonly helper?: string;
  /** The folder of GnuPG's programs in the remote. */
  readonly remoteFolder?: string;
  readonly versions?: { readonly agent?: string; readonly request?: string };
}

/** What an editor keeps while none of its windows is open. */
export class Profile {
  readonly storage = mkdtempSync(path.join(tmpdir(), 'kbp'));
  readonly #kept = new Map<string, unknown>();

  get(key: string): unknown {
    return this.#kept.get(key);
  }

  update(key: string, value: unknown): Promise<void> {
    this.#kept.set(key, value);
    return Promise.resolve();
  }

  clear(): void {
    rmSync(this.storage, { recursive: true, force: true });
  }
}

/** What the programs of both sides find in their environment. */
export interface Environments {
  readonly hostEnvironment: NodeJS.ProcessEnv;
  readonly target: { readonly env: NodeJS.ProcessEnv };
}

/** A window of an editor without the editor: both extensions, and a table of commands. */
export class Editor {
  readonly window: Window;
  readonly requests: Requests;
  readonly states: string[] = [];
  readonly log: string[] = [];
  /** The size of every call that crossed, by its command. */
  readonly crossed: { readonly command: string; readonly size: number }[] = [];
  /** How often the person was asked for consent. */
  asked = 0;
  readonly #ownProfile: Profile | undefined;
  readonly #commands = new Map<string, (...values: unknown[]) => unknown>();

  constructor(lab: Environments, choices: Choices = {}) {
    // ssh has its home by the system's word alone, which is not a lab's.
    const { answer = 'yes', options = ['--lanes=gpg'], versions = {} } = choices;
    const host = choices.host ?? path.join(programs(), 'keybridge');
    const helper = choices.helper ?? path.join(programs(), 'keybridge-remote');
    const profile = choices.profile ?? new Profile();
    this.#ownProfile = choices.profile ? undefined : profile;
    const remote = { name: 'test+remote', isCertain: true };
    const ceilingFile = new CeilingFile(profile.storage, remote, async (file) => {
      const words = ['rpc', '--raise', '--target=vscode:test+remote', `--ceiling=${file}`];
      await outputOf(host, [...words, ...options], lab.hostEnvironment);
    });
    const consent = new Consent(remote, profile, ceilingFile, () => {
      this.asked += 1;
      return Promise.resolve(answer);
    });
    const start = (...words: string[]) =>
      startProgram(host, [...words, ...options], lab.hostEnvironment);
    const hostPrograms = {
      extension: versions.agent ?? '0.1.0',
      version: () => Promise.resolve('0.1.0'),
      startLink: (replace: boolean, ceiling: string) =>
        start(
          'link',
          '--target=vscode:test+remote',
          `--ceiling=${ceiling}`,
          ...(replace ? ['--replace'] : []),
        ),
      startRpc: (ceiling: string) =>
        start('rpc', '--target=vscode:test+remote', `--ceiling=${ceiling}`),
    };
    this.window = new Window(
      consent,
      hostPrograms,
      remoteBy(this.execute, [0, 10]),
      ({ state }) => this.states.push(state.name),
      (line) => this.log.push(line),
    );
    const setup = {
      program: () => Promise.resolve(helper),
      environment: async () => {
        await environment(choices.remoteFolder, 'keybridge.remote.gnupgFolder', undefined);
        return lab.target.env;
      },
    };
    this.requests = new Requests(setup, agentBy(this.execute), versions.request ?? '0.1.0');
    this.#register(AGENT, bytesHandlers(this.window));
    this.#register(AGENT, interfaceHandlers(this.window));
    const pick = choices.pick ?? (() => undefined);
    const compatible = compatibleHandlers(this.window, {
      version: hostPrograms.extension,
      pick: (keys) => Promise.resolve(pick(keys.map(({ fingerprint }) => fingerprint))),
    });
    COMPATIBLE_PREFIXES.forEach((prefix) => {
      this.#register(prefix, compatible);
    });
    this.#register(REQUEST, handlersOf(this.requests));
  }

  get state(): BridgeState {
    return this.window.bridge.state;
  }

  readonly execute: Execute = async (command, ...values) => {
    const handler = this.#commands.get(command);
    if (!handler) {
      throw new Error(`command '${command}' not found`);
    }
    this.crossed.push({ command, size: JSON.stringify(values).length });
    return await handler(...values);
  };

  /** As if an extension weren't there. */
  forget(prefix: string): void {
    for (const command of [...this.#commands.keys()]) {
      if (command.startsWith(`${prefix}.`)) {
        this.#commands.delete(command);
      }
    }
  }

  /** As if a command never came to its end; resolves when it is called. */
  stall(command: string): Promise<void> {
    return new Promise((called) => {
      this.#commands.set(command, () => {
        called();
        return new Promise(() => undefined);
      });
    });
  }

  /** Ends both extensions, as closing the window does. */
  async close(): Promise<void> {
    await this.window.stop();
    await this.requests.end();
    this.#ownProfile?.clear();
  }

  #register(prefix: string, handlers: Record<string, (...values: never[]) => unknown>): void {
    for (const [name, handler] of Object.entries(handlers)) {
      this.#commands.set(`${prefix}.${name}`, handler as (...values: unknown[]) => unknown);
    }
  }
}
