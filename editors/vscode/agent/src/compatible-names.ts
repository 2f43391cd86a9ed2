import * as vscode from 'vscode';

import { asError } from '../../channel/crossing.ts';
import { AGENT_EXTENSION } from './bridge.ts';
import { COMPATIBLE_PREFIXES } from './compatible.ts';
import type { Handlers } from './handlers.ts';
import { ownerOf } from './name-owner.ts';

/** Registers the commands of a prefix: all of them, or none and an error. */
export function register(prefix: string, handlers: Handlers): vscode.Disposable {
  const registered: vscode.Disposable[] = [];
  try {
    for (const [name, handler] of Object.entries(handlers)) {
      registered.push(vscode.commands.registerCommand(`${prefix}.${name}`, handler));
    }
  } catch (error) {
    vscode.Disposable.from(...registered).dispose();
    throw error;
  }
  return vscode.Disposable.from(...registered);
}

/** Registers the names under which request extensions of other makers look for an agent, if a setting says so. */
export class CompatibleNames implements vscode.Disposable {
  readonly #handlers: Handlers;
  readonly #taken: (notes: readonly string[]) => void;
  #registered: vscode.Disposable[] = [];

  /** `taken` gets the names that another extension has. */
  constructor(handlers: Handlers, taken: (notes: readonly string[]) => void) {
    this.#handlers = handlers;
    this.#taken = taken;
  }

  /** Applies the setting. */
  follow(isWanted: boolean): void {
    this.dispose();
    const prefixes = isWanted ? COMPATIBLE_PREFIXES : [];
    this.#taken(prefixes.flatMap((prefix) => this.#try(prefix)));
  }

  dispose(): void {
    vscode.Disposable.from(...this.#registered).dispose();
    this.#registered = [];
  }

  /** Registers a prefix; resolves to who has it otherwise. */
  #try(prefix: string): string[] {
    const others = vscode.extensions.all
      .filter(({ id }) => id !== AGENT_EXTENSION)
      .map(({ id, packageJSON }) => ({ id, manifest: packageJSON as unknown }));
    const owner = ownerOf(prefix, others);
    // It may be activated later, and would fail to register them.
    if (owner?.isAgent) {
      return [`${owner.id} is installed, and has the names ${prefix}.*`];
    }
    try {
      this.#registered.push(register(prefix, this.#handlers));
      return [];
    } catch (error) {
      const { message } = asError(error);
      return [`${owner?.id ?? 'another extension'} has the names ${prefix}.*: ${message}`];
    }
  }
}
