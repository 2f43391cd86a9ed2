import { printable } from '../../channel/printable.ts';
import { isVersion } from '../../channel/versions.ts';
import type { ExportedKeys } from './command-interface.ts';
import { type Handlers, guarded } from './handlers.ts';
import { CallRejected } from './json-rpc.ts';
import type { Window } from './window.ts';

/** Under these prefixes request extensions of other makers look for an agent. */
export const COMPATIBLE_PREFIXES = ['_gpg-bridge-agent', '_gpg-agent-proxy'];

/** The answer to whether the two extensions are compatible. */
export type VersionAnswer =
  | { readonly match: true }
  | { readonly match: false; readonly agentVersion: string; readonly requestVersion: string };

/** What these handlers need. */
export interface Setup {
  /** The version of this extension. */
  readonly version: string;
  /** Lets the person pick keys; resolves to their fingerprints, or undefined if none was picked. */
  readonly pick: (keys: ExportedKeys['keys']) => Promise<string[] | undefined>;
}

/** The command interface in the shapes that request extensions of other makers expect. */
export function compatibleHandlers(window: Window, { version, pick }: Setup): Handlers {
  const { commands } = window;
  const check = (): void => {
    window.serve();
  };
  const picked = async (): Promise<string[] | undefined> => {
    const { keys } = await commands.exportPublicKeys('pairs');
    return keys.length > 0 ? pick(keys) : undefined;
  };
  const served = guarded(check, {
    /** Resolves to the session's id and the agent's greeting. */
    connectAgent: (session) => commands.connectAgent(session),

    /** Resolves to the whole response, up to an OK, an ERR or an INQUIRE. */
    sendCommands: (session, block) => commands.sendCommands(session, block),

    /** Resolves to nothing. It is called for every client, even after the client's own BYE. */
    disconnectAgent: async (session) => {
      try {
        await commands.disconnectAgent(session);
      } catch (error) {
        if (!(error instanceof CallRejected && error.kind === 'unknownId')) {
          throw error;
        }
      }
    },

    /** Resolves to armored keys, or nothing; without a filter the person picks them. */
    exportPublicKeys: async (filter) => {
      const wanted = filter ?? (await picked());
      if (wanted === undefined) {
        return undefined;
      }
      const { armored } = await commands.exportPublicKeys(wanted);
      return armored === '' ? undefined : armored;
    },
  });
  return {
    ...served,

    /**
     * Such an extension asks once, at its start, and gives up for good after a rejection. So this never
     * rejects, and waits for the person's answer. No version is known that doesn't work.
     */
    checkVersion: async (asked): Promise<VersionAnswer> => {
      await window.decided();
      noteServed(window);
      if (isVersion(asked)) {
        return { match: true };
      }
      return { match: false, agentVersion: version, requestVersion: described(asked) };
    },
  };
}

/** Ignores a no: every other call is refused then. */
function noteServed(window: Window): void {
  try {
    window.serve();
  } catch {
    // The calls that follow say why.
  }
}

/** The longest version that is shown. */
const MAX_VERSION = 100;

function described(value: unknown): string {
  return typeof value === 'string' ? printable(value.slice(0, MAX_VERSION)) : typeof value;
}
