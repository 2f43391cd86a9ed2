import * as vscode from 'vscode';

import { notLinked } from '../../channel/printable.ts';
import { titleOf } from './authority.ts';
import type { ExportedKeys } from './command-interface.ts';
import type { Answer, RemoteName } from './consent.ts';
import type { Fix, Problem } from './problem.ts';

const ALLOW = 'Allow';
const NEVER = 'Not for This Remote';
const LEND = 'Lend Them';

/** Asks whether a remote may use the keys; undefined if the dialog is closed without an answer. */
export async function askConsent(remote: RemoteName): Promise<Answer | undefined> {
  const lasting = remote.isCertain
    ? 'keybridge remembers your answer.'
    : "keybridge can't tell this remote from others, and asks again in each window.";
  const detail =
    'Programs there can then have data signed and decrypted, log in to SSH servers, and have commits ' +
    'and tags of git signed, as far as your settings allow, while a window on it is open. ' +
    `The keys stay here. ${lasting}`;
  const chosen = await vscode.window.showInformationMessage(
    `Let ${titleOf(remote)} use the keys of this machine?`,
    // Modal, since a notification disappears and is easily missed.
    { modal: true, detail },
    ALLOW,
    NEVER,
  );
  switch (chosen) {
    case ALLOW:
      return 'yes';
    case NEVER:
      return 'no';
    case undefined:
      return undefined;
  }
}

/** Asks whether the keys that are new on this machine are lent too. */
export async function askForNewKeys(remote: string): Promise<boolean> {
  const detail =
    'Programs there can then use every key that this machine has now and your settings allow, also ' +
    'those that it got since you allowed this remote. The keys stay here.';
  const chosen = await vscode.window.showInformationMessage(
    `Lend the new keys of this machine to ${remote}?`,
    { modal: true, detail },
    LEND,
  );
  return chosen === LEND;
}

/** Lets the person pick keys; resolves to their fingerprints, or undefined if none was picked. */
export async function pickKeys(
  keys: ExportedKeys['keys'],
  title: string,
): Promise<string[] | undefined> {
  const items = keys.map(({ fingerprint, userId }) => ({
    label: userId || fingerprint,
    description: fingerprint.slice(-16),
    picked: true,
    fingerprint,
  }));
  const picked = await vscode.window.showQuickPick(items, {
    canPickMany: true,
    title,
    placeHolder: 'The keys whose public half the remote gets',
  });
  return picked && picked.length > 0 ? picked.map(({ fingerprint }) => fingerprint) : undefined;
}

/** What the buttons of a problem can do. */
export interface Fixes {
  start(replace: boolean): Promise<unknown>;
  sync(): Promise<unknown>;
  lendNewKeys(): Promise<unknown>;
  showLog(): Promise<unknown>;
}

/** Shows a problem, with the fix as a button. */
export async function showProblem(problem: Problem, fixes: Fixes): Promise<void> {
  const label = labelOf(problem.fix);
  const text = notLinked(`keybridge: ${problem.message}`);
  const chosen = await vscode.window.showErrorMessage(text, label, SHOW_LOG);
  switch (chosen) {
    case undefined:
      return;
    case SHOW_LOG:
      await fixes.showLog();
      return;
    default:
      await apply(problem.fix, fixes);
  }
}

const SHOW_LOG = 'Show Log';

function labelOf(fix: Fix): string {
  switch (fix.kind) {
    case 'install-request':
      return 'Install It There';
    case 'open-setting':
      return 'Open Setting';
    case 'show-extension':
      return 'Show Extension';
    case 'take-over':
      return 'Take Over';
    case 'start':
      return 'Start';
    case 'sync':
    case 'lend-new-keys':
    case 'try-again':
      return 'Try Again';
  }
}

async function apply(fix: Fix, fixes: Fixes): Promise<void> {
  switch (fix.kind) {
    case 'install-request':
      await vscode.commands.executeCommand(
        'workbench.extensions.installExtension',
        'keybridge.keybridge-request',
      );
      await fixes.start(false);
      return;
    case 'open-setting':
      await vscode.commands.executeCommand('workbench.action.openSettings', fix.setting);
      return;
    case 'show-extension':
      await vscode.commands.executeCommand('extension.open', fix.id);
      return;
    case 'take-over':
      await fixes.start(true);
      return;
    case 'sync':
      await fixes.sync();
      return;
    case 'lend-new-keys':
      await fixes.lendNewKeys();
      return;
    case 'start':
    case 'try-again':
      await fixes.start(false);
  }
}
