import { setTimeout as sleep } from 'node:timers/promises';

import type { Chunk } from '../../channel/chunk.ts';
import { type Execute, asError, cross } from '../../channel/crossing.ts';
import { failureIn } from '../../channel/failure.ts';
import { REQUEST } from '../../channel/names.ts';
import { printable } from '../../channel/printable.ts';
import type { SessionId } from '../../channel/session-id.ts';
import { Problem } from './problem.ts';

/** The other extension, in the remote. What it returns is untrusted. */
export interface Remote {
  versions(): Promise<{ extension: string; helper: string }>;
  open(session: SessionId, words: readonly string[]): Promise<void>;
  carry(chunk: Chunk): Promise<void>;
  endInput(session: SessionId): Promise<void>;
  close(session: SessionId): Promise<void>;
}

/** The identifier of the other extension. */
export const REQUEST_EXTENSION = 'keybridge.keybridge-request';

/** Milliseconds before each attempt to reach the other extension, which may be just starting. */
const TRIES = [0, 1000, 2000, 3000];

/** Calls the other extension by its commands. */
export function remoteBy(execute: Execute, tries: readonly number[] = TRIES): Remote {
  const call = async (command: string, ...values: unknown[]): Promise<unknown> => {
    let result: unknown;
    try {
      result = await cross(execute, `${REQUEST}.${command}`, ...values);
    } catch (thrown) {
      throw explained(asError(thrown).message);
    }
    const failure = failureIn(result);
    if (failure) {
      const { message, setting } = failure;
      throw new Problem(said(message), { kind: 'open-setting', setting });
    }
    return result;
  };
  const callWhenThere = async (): Promise<unknown> => {
    let missing: unknown;
    for (const pause of tries) {
      await sleep(pause);
      try {
        return await call('versions');
      } catch (error) {
        if (!(error instanceof Problem && error.fix.kind === 'install-request')) {
          throw error;
        }
        missing = error;
      }
    }
    throw missing;
  };
  return {
    versions: async () => {
      const answer = ((await callWhenThere()) ?? {}) as Record<string, unknown>;
      return { extension: text(answer['extension']), helper: text(answer['helper']) };
    },
    open: async (session, words) => {
      await call('open', session, words);
    },
    carry: async (chunk) => {
      await call('carry', chunk);
    },
    endInput: async (session) => {
      await call('endInput', session);
    },
    close: async (session) => {
      await call('close', session);
    },
  };
}

/** The longest version that a remote may return. */
const MAX_TEXT = 200;

/** The longest error message of a remote. */
const MAX_ERROR = 2000;

function text(value: unknown): string {
  return typeof value === 'string' ? value.slice(0, MAX_TEXT) : '';
}

/** Turns the editor's text for a command that no extension has into a problem: there is no code for it. */
function explained(message: string): Error {
  if (/command '[^']*' not found/.test(message)) {
    return new Problem('keybridge-request is not installed in this remote', {
      kind: 'install-request',
    });
  }
  return new Error(said(message));
}

/** The words of a remote, which must not look like ours. */
function said(message: string): string {
  const words = printable(message.slice(0, MAX_ERROR)).slice(0, MAX_ERROR);
  return `the remote says: ${words}`;
}
