import type { Window } from './window.ts';

/** The handlers of the commands of one prefix. */
export type Handlers = Readonly<
  Record<string, (first?: unknown, second?: unknown) => Promise<unknown>>
>;

/** The commands that keybridge-request calls. */
export function bytesHandlers(window: Window): Handlers {
  const { bridge } = window;
  const check = (): void => {
    window.checkConsent();
  };
  return guarded(check, {
    carry: (chunk) => bridge.carry(chunk),
    complain: (chunk) => bridge.complain(chunk),
    helperEnded: (session, exit) => bridge.helperEnded(session, exit),
  });
}

/** The command interface, which any request extension can call. */
export function interfaceHandlers(window: Window): Handlers {
  const { commands } = window;
  const check = (): void => {
    window.serve();
  };
  return guarded(check, {
    connectAgent: (session) => commands.connectAgent(session),
    sendCommands: (session, block) => commands.sendCommands(session, block),
    disconnectAgent: (session) => commands.disconnectAgent(session),
    exportPublicKeys: async (filter) => {
      const exported = await commands.exportPublicKeys(filter);
      if (exported.keys.length === 0 && exported.warnings.length > 0) {
        throw new Error(exported.warnings.join('; '));
      }
      return exported;
    },
    checkVersion: (version) => commands.checkVersion(version),
  });
}

/** Runs a check before each call. */
export function guarded(check: () => void, handlers: Handlers): Handlers {
  const entries = Object.entries(handlers).map(
    ([name, handler]) =>
      [
        name,
        async (first?: unknown, second?: unknown) => {
          check();
          return handler(first, second);
        },
      ] as const,
  );
  return Object.fromEntries(entries);
}
