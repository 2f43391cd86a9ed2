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

/** The names under which request extensions of other makers look for an agent, while a setting wants them. */
export class CompatibleNames implements vscode.Disposable {
  readonly #handlers: Handlers;
  readonly #taken: (notes: readonly string[]) => void;
  #registered: vscode.Disposable[] = [];

  /** `taken` is told which of the names somebody else has. */
  constructor(handlers: Handlers, taken: (notes: readonly string[]) => void) {
    this.#handlers = handlers;
    this.#taken = taken;
  }

  /** Does what the setting says now. */
  follow(isWanted: boolean): void {
    this.dispose();
    const prefixes = isWanted ? COMPATIBLE_PREFIXES : [];
    this.#taken(prefixes.flatMap((prefix) => this.#try(prefix)));
  }

  dispose(): void {
    vscode.Disposable.from(...this.#registered).dispose();
    this.#registered = [];
  }

  /** Registers a prefix, or says who has it. */
  #try(prefix: string): string[] {
    const others = vscode.extensions.all
      .filter(({ id }) => id !== AGENT_EXTENSION)
      .map(({ id, packageJSON }) => ({ id, manifest: packageJSON as unknown }));
    const owner = ownerOf(prefix, others);
    // It may be activated later, and would fail then.
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
