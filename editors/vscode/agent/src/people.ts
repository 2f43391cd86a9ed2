import * as vscode from 'vscode';

import { type Fixes, showProblem } from './questions.ts';
import type { KeyChanges } from './status.ts';
import type { Shown, Window } from './window.ts';

/** The commands for people, by their names after `keybridge.`. */
export function commandsFor(window: Window, remote: string, log: vscode.OutputChannel) {
  const fixes: Fixes = {
    start: (replace) => start(window, replace, fixes),
    showLog: () => {
      log.show();
    },
  };
  return {
    start: () => start(window, false, fixes),
    stop: () => window.stop(),
    showStatus: () => showStatus(window, remote, fixes),
    syncPublicKeys: (keys?: unknown) => sync(window, keys),
    showLog: () => {
      log.show();
    },
  };
}

async function start(window: Window, replace: boolean, fixes: Fixes): Promise<Shown> {
  const shown = await window.start(replace);
  if (shown.state.name === 'failed') {
    void showProblem(shown.state.problem, fixes);
  }
  return shown;
}

/** Sends public keys: those that were named, or those that a person picks. */
async function sync(window: Window, named: unknown): Promise<KeyChanges | undefined> {
  window.check();
  const keys = Array.isArray(named) ? named.map(String) : await pickKeys(window);
  if (!keys) {
    return undefined;
  }
  const changes = await window.bridge.sync(keys);
  const { new: added, updated, unchanged, warnings = [] } = changes;
  const text = `keybridge: keys: ${added} new, ${updated} updated, ${unchanged} unchanged`;
  if (warnings.length > 0) {
    void vscode.window.showWarningMessage([text, ...warnings].join('; '));
  } else {
    void vscode.window.showInformationMessage(text);
  }
  return changes;
}

async function pickKeys(window: Window): Promise<string[] | undefined> {
  const { keys } = await window.commands.exportPublicKeys('pairs');
  const items = keys.map(({ fingerprint, userId }) => ({
    label: userId || fingerprint,
    description: fingerprint.slice(-16),
    picked: true,
    fingerprint,
  }));
  const picked = await vscode.window.showQuickPick(items, {
    canPickMany: true,
    title: 'keybridge: Sync Public Keys',
    placeHolder: 'The keys whose public half the remote gets',
  });
  return picked && picked.length > 0 ? picked.map(({ fingerprint }) => fingerprint) : undefined;
}

interface Row extends vscode.QuickPickItem {
  readonly act?: () => unknown;
}

async function showStatus(window: Window, remote: string, fixes: Fixes): Promise<void> {
  const separator: Row = { label: '', kind: vscode.QuickPickItemKind.Separator };
  const rows = [...facts(window), separator, ...actions(window, fixes)];
  const chosen = await vscode.window.showQuickPick(rows, {
    title: `keybridge: ${remote}`,
    placeHolder: 'Choose what to do',
  });
  await chosen?.act?.();
}

function facts(window: Window): Row[] {
  const { state, sessions } = window.shown;
  switch (state.name) {
    case 'off':
      return [{ label: '$(circle-slash) off' }];
    case 'starting':
      return [{ label: '$(loading~spin) starting', description: state.doing }];
    case 'failed':
      return [{ label: '$(warning) failed', detail: state.problem.message }];
    case 'shared':
      return [
        {
          label: '$(key) shared',
          description: `another window has the bridge; open sessions: ${sessions}`,
        },
      ];
    case 'ready': {
      const lanes = Object.entries(state.status.lanes).map(([name, lane]) => ({
        label: `$(plug) ${name}`,
        description: lane.socket,
        detail: `open: ${lane.open}, so far: ${lane.total}, bytes in: ${lane.bytes_in}, out: ${lane.bytes_out}`,
      }));
      const about = `user ${state.ready.user}, gpg ${state.ready.gnupg} there; ${state.agent}`;
      return [
        { label: '$(key) ready', description: `open sessions: ${sessions}`, detail: about },
        ...lanes,
      ];
    }
  }
}

function actions(window: Window, fixes: Fixes): Row[] {
  const log: Row = {
    label: '$(output) Show Log',
    act: () => {
      fixes.showLog();
    },
  };
  const forget: Row[] =
    window.consent.answer === undefined
      ? []
      : [{ label: '$(trash) Forget the Consent for This Remote', act: () => window.forget() }];
  switch (window.shown.state.name) {
    case 'off':
    case 'failed':
      return [{ label: '$(play) Start', act: () => fixes.start(false) }, log, ...forget];
    case 'starting':
    case 'shared':
    case 'ready':
      return [
        { label: '$(sync) Sync Public Keys', act: () => sync(window, undefined) },
        { label: '$(debug-stop) Stop', act: () => window.stop() },
        log,
        ...forget,
      ];
  }
}
