import * as vscode from 'vscode';

import type { Execute } from '../../channel/crossing.ts';
import { REQUEST } from '../../channel/names.ts';
import { environment, findProgram } from '../../channel/program.ts';
import { agentBy } from './helper.ts';
import { Requests, type Setup, handlersOf } from './requests.ts';

let requests: Requests | undefined;

/** Registers the commands that keybridge-agent calls. In a local window it does nothing. */
export function activate(context: vscode.ExtensionContext): void {
  if (vscode.env.remoteName === undefined) {
    return;
  }
  const { version } = context.extension.packageJSON as { version: string };
  const all = new Requests(setup(context), agentBy(execute), version);
  requests = all;
  for (const [name, handler] of Object.entries(handlersOf(all))) {
    context.subscriptions.push(vscode.commands.registerCommand(`${REQUEST}.${name}`, handler));
  }
}

/** Ends the helper, which undoes what it did. */
export async function deactivate(): Promise<void> {
  await requests?.end();
}

const execute: Execute = (command, ...values) => vscode.commands.executeCommand(command, ...values);

function setup(context: vscode.ExtensionContext): Setup {
  const setting = (name: string): string | undefined => {
    const value = vscode.workspace.getConfiguration('keybridge.remote').get(name);
    return typeof value === 'string' && value.trim() ? value.trim() : undefined;
  };
  const variables = (): Promise<NodeJS.ProcessEnv> =>
    environment(setting('gnupgFolder'), 'keybridge.remote.gnupgFolder', setting('gnupgHome'));
  return {
    environment: variables,
    program: async () =>
      findProgram(
        {
          name: 'keybridge-remote',
          chosen: setting('program'),
          setting: 'keybridge.remote.program',
          extensionFolder: context.extensionPath,
        },
        process.env['PATH'] ?? '',
      ),
  };
}
