import * as vscode from 'vscode';

import { type Execute, asError } from '../../channel/crossing.ts';
import { AGENT } from '../../channel/names.ts';
import { placeIn, remoteOf, targetOf, titleOf } from './authority.ts';
import { CeilingFile } from './ceiling-file.ts';
import type { ExportedKeys } from './command-interface.ts';
import { CompatibleNames, register } from './compatible-names.ts';
import { compatibleHandlers } from './compatible.ts';
import { Consent, type RemoteName } from './consent.ts';
import { bytesHandlers, interfaceHandlers } from './handlers.ts';
import { HostProgram } from './host-program.ts';
import { PaletteCommands } from './palette.ts';
import { askConsent, pickKeys } from './dialogs.ts';
import { remoteBy } from './remote.ts';
import { type Settings, readSettings } from './settings.ts';
import { StatusItem } from './status-item.ts';
import { Window } from './window.ts';

let window: Window | undefined;

/** Makes the agents of this machine usable in the remote of this window, if it has one. */
export function activate(context: vscode.ExtensionContext): void {
  const isBesideFiles = context.extension.extensionKind === vscode.ExtensionKind.Workspace;
  const remote = remoteOf(placeIn(vscode, isBesideFiles));
  if (!remote) {
    return;
  }
  const log = vscode.window.createOutputChannel('keybridge');
  const item = new StatusItem(titleOf(remote));
  const opened = open(context, remote, item, log);
  window = opened;
  item.show(opened.shown);
  context.subscriptions.push(log, item, register(AGENT, bytesHandlers(opened)));
  const palette = new PaletteCommands(opened, titleOf(remote), log);
  context.subscriptions.push(register('keybridge', palette.handlers));
  registerInterface(context, opened, log);
  palette.begin().catch((error: unknown) => {
    log.appendLine(`not started: ${asError(error).message}`);
  });
}

/** Stops everything; the helper undoes what it did in the remote. */
export async function deactivate(): Promise<void> {
  await window?.stop();
}

const execute: Execute = (command, ...values) => vscode.commands.executeCommand(command, ...values);

function versionOf(context: vscode.ExtensionContext): string {
  return (context.extension.packageJSON as { version: string }).version;
}

function settings(): Settings {
  const configuration = vscode.workspace.getConfiguration('keybridge');
  return readSettings((name) => configuration.get(name));
}

function open(
  context: vscode.ExtensionContext,
  remote: RemoteName,
  item: StatusItem,
  log: vscode.OutputChannel,
): Window {
  const programs = new HostProgram(
    versionOf(context),
    targetOf(remote),
    context.extensionPath,
    settings,
  );
  const ceiling = new CeilingFile(context.globalStorageUri.fsPath, remote, async (file) => {
    try {
      await programs.raise(file);
    } catch (error) {
      log.appendLine(`no key is lent yet: ${asError(error).message}`);
      throw error;
    }
  });
  context.subscriptions.push(ceiling);
  const consent = new Consent(remote, context.globalState, ceiling, () => askConsent(remote));
  return new Window(
    consent,
    programs,
    remoteBy(execute),
    (shown) => {
      item.show(shown);
    },
    (line) => {
      log.appendLine(line);
    },
  );
}

/** The command interface, under our own name, and under other names if a setting says so. */
function registerInterface(
  context: vscode.ExtensionContext,
  opened: Window,
  log: vscode.OutputChannel,
): void {
  context.subscriptions.push(register(AGENT, interfaceHandlers(opened)));
  const setup = {
    version: versionOf(context),
    pick: (keys: ExportedKeys['keys']) =>
      pickKeys(keys, 'keybridge: Public Keys for Another Extension'),
  };
  const names = new CompatibleNames(compatibleHandlers(opened, setup), (notes) => {
    notes.forEach((note) => {
      log.appendLine(note);
    });
    opened.note(notes);
  });
  const follow = (): void => {
    names.follow(settings().compatibleCommands);
  };
  follow();
  const changes = vscode.workspace.onDidChangeConfiguration((change) => {
    if (change.affectsConfiguration('keybridge.compatibleCommands')) {
      follow();
    }
  });
  context.subscriptions.push(changes, names);
}
