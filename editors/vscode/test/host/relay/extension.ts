import * as vscode from 'vscode';

import { AGENT_COMMANDS } from '../../lab/agent-commands.ts';

/** Where a call comes in, where it goes to, and which there are. */
const ROUTES = [
  {
    from: '_keybridge-agent',
    to: '_far-agent',
    names: AGENT_COMMANDS,
  },
  {
    from: '_near-request',
    to: '_keybridge-request',
    names: ['versions', 'open', 'carry', 'endInput', 'close'],
  },
];

/** Passes every call on, and counts them. */
export function activate(context: vscode.ExtensionContext): void {
  let calls = 0;
  for (const { from, to, names } of ROUTES) {
    for (const name of names) {
      const pass = (...values: unknown[]): Thenable<unknown> => {
        calls += 1;
        return vscode.commands.executeCommand(`${to}.${name}`, ...values);
      };
      context.subscriptions.push(vscode.commands.registerCommand(`${from}.${name}`, pass));
    }
  }
  const about = (): unknown => ({
    calls,
    isWorker: 'WorkerGlobalScope' in globalThis,
    hasNode: 'process' in globalThis && 'versions' in process && 'node' in process.versions,
  });
  context.subscriptions.push(vscode.commands.registerCommand('_relay.about', about));
}
