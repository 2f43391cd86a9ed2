import * as vscode from 'vscode';

/** Some of the names, of which ours has more: those that are left are not taken either. */
const NAMES = ['connectAgent', 'sendCommands', 'disconnectAgent'];

/** Registers the names of an agent, and says who it is. */
export function activate(context: vscode.ExtensionContext): void {
  for (const name of NAMES) {
    const command = `_gpg-bridge-agent.${name}`;
    const answer = (): string => `the other agent: ${name}`;
    context.subscriptions.push(vscode.commands.registerCommand(command, answer));
  }
}
