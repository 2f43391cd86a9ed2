import * as vscode from 'vscode';

import { asError } from '../../channel/crossing.ts';
import { notLinked } from '../../channel/printable.ts';
import type { Handlers } from './handlers.ts';
import { CallRejected } from './json-rpc.ts';
import { type Fix, Problem, withHints } from './problem.ts';
import { askForNewKeys, pickKeys, showProblem } from './dialogs.ts';
import { type KeyChanges, userOf } from './status.ts';
import type { Shown, Window } from './window.ts';

interface Row extends vscode.QuickPickItem {
  readonly act?: () => Promise<unknown>;
}

/** The commands of the palette in one window. */
export class PaletteCommands {
  readonly #window: Window;
  readonly #remote: string;
  readonly #log: vscode.OutputChannel;

  constructor(window: Window, remote: string, log: vscode.OutputChannel) {
    this.#window = window;
    this.#remote = remote;
    this.#log = log;
  }

  /** The commands, by their names after `keybridge.`. */
  get handlers(): Handlers {
    return {
      start: () => this.#start(false),
      stop: () => this.#window.stop(),
      showStatus: () => this.#showStatus(),
      syncPublicKeys: (keys) => (Array.isArray(keys) ? this.#sync(keys) : this.#syncPicked()),
      lendNewKeys: () => this.#lendNewKeys(),
      showLog: () => this.#showLog(),
    };
  }

  /** Starts if the person consented before; asks for consent if there is no answer yet. */
  async begin(): Promise<void> {
    await this.#window.begin();
    this.#tellProblem();
  }

  async #start(replace: boolean): Promise<Shown> {
    const shown = await this.#window.start(replace);
    this.#tellProblem();
    return shown;
  }

  #tellProblem(): void {
    const { state } = this.#window.shown;
    if (state.name === 'failed') {
      this.#tell(state.problem);
    }
  }

  #tell(problem: Problem): void {
    const fixes = {
      start: (replace: boolean) => this.#start(replace),
      sync: () => this.#syncPicked(),
      lendNewKeys: () => this.#lendNewKeys(),
      showLog: () => this.#showLog(),
    };
    void showProblem(problem, fixes);
  }

  #showLog(): Promise<void> {
    this.#log.show();
    return Promise.resolve();
  }

  /** Sends the public keys that the person picks. */
  async #syncPicked(): Promise<KeyChanges | undefined> {
    return this.#telling({ kind: 'sync' }, async () => {
      this.#window.check();
      const keys = await this.#pickKeys();
      return keys && (await this.#sync(keys));
    });
  }

  /** Lends what is new on this machine, if the person agrees; whether it is lent. */
  async #lendNewKeys(): Promise<boolean | undefined> {
    const isLent = await this.#telling({ kind: 'lend-new-keys' }, () =>
      this.#window.lendNewKeys(() => askForNewKeys(this.#remote)),
    );
    const { name } = this.#window.shown.state;
    if (isLent && (name === 'ready' || name === 'shared')) {
      await this.#telling({ kind: 'sync' }, () => this.#sync());
    }
    return isLent;
  }

  /** Does something whose error is shown like any other problem. */
  async #telling<T>(retry: Fix, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      const { name } = this.#window.shown.state;
      const isBridged = name !== 'off' && name !== 'failed' && name !== 'served';
      const fix: Fix = isBridged ? retry : { kind: 'start' };
      const { message } = asError(error);
      const hints = error instanceof CallRejected ? error.hints : [];
      this.#tell(new Problem(withHints(message, hints), fix));
      return undefined;
    }
  }

  /** Sends these public keys, or those of the settings. */
  async #sync(named?: readonly unknown[]): Promise<KeyChanges> {
    this.#window.check();
    const changes = await this.#window.bridge.sync(named?.map(String));
    const { new: added, updated, unchanged, warnings = [] } = changes;
    const text = `keybridge: keys: ${added} new, ${updated} updated, ${unchanged} unchanged`;
    if (warnings.length > 0) {
      void vscode.window.showWarningMessage(notLinked([text, ...warnings].join('; ')));
    } else {
      void vscode.window.showInformationMessage(text);
    }
    return changes;
  }

  async #pickKeys(): Promise<string[] | undefined> {
    const { keys } = await this.#window.commands.exportPublicKeys('pairs');
    return pickKeys(keys, 'keybridge: Sync Public Keys');
  }

  async #showStatus(): Promise<void> {
    const separator: Row = { label: '', kind: vscode.QuickPickItemKind.Separator };
    const rows = [...facts(this.#window.shown), separator, ...this.#actions()];
    const chosen = await vscode.window.showQuickPick(rows, {
      title: `keybridge: ${this.#remote}`,
      placeHolder: 'Choose what to do',
    });
    await chosen?.act?.();
  }

  #actions(): Row[] {
    const log: Row = { label: '$(output) Show Log', act: () => this.#showLog() };
    const forget: Row = {
      label: '$(trash) Forget the Consent for This Remote',
      act: () => this.#window.forget(),
    };
    const last = this.#window.consent.answer === undefined ? [log] : [log, forget];
    const start: Row = { label: '$(play) Start', act: () => this.#start(false) };
    const lend: Row = { label: '$(add) Lend New Keys', act: () => this.#lendNewKeys() };
    const { state, newKeys } = this.#window.shown;
    const stop: Row = { label: '$(debug-stop) Stop', act: () => this.#window.stop() };
    switch (state.name) {
      case 'off':
      case 'failed':
        return [start, ...last];
      case 'served':
        // Without a bridge it isn't known whether there are some.
        return [lend, stop, ...last];
      case 'starting':
      case 'shared':
      case 'waiting':
      case 'ready':
        return [
          ...(newKeys > 0 ? [lend] : []),
          { label: '$(sync) Sync Public Keys', act: () => this.#syncPicked() },
          stop,
          ...last,
        ];
    }
  }
}

/** The state of a window, one row for each fact. */
function facts(shown: Shown): Row[] {
  const notes = shown.notes.map((note) => ({ label: '$(info) note', detail: note }));
  return [...stateFacts(shown), ...notes];
}

function stateFacts({ state, sessions }: Shown): Row[] {
  const open = `open sessions: ${sessions}`;
  switch (state.name) {
    case 'off':
      return [{ label: '$(circle-slash) off' }];
    case 'starting':
      return [{ label: '$(loading~spin) starting', description: state.doing }];
    case 'failed':
      return [{ label: '$(warning) failed', detail: state.problem.message }];
    case 'served':
      return [{ label: '$(key) served', description: `another extension uses the keys; ${open}` }];
    case 'shared':
      return [{ label: '$(key) shared', description: `another window has the bridge; ${open}` }];
    case 'waiting':
      return [{ label: '$(loading~spin) waiting', detail: state.status.reason ?? '' }];
    case 'ready': {
      const lanes = Object.entries(state.status.lanes).map(([name, lane]) => ({
        label: `$(plug) ${name}`,
        description: lane.socket,
        detail: `open: ${lane.open}, so far: ${lane.total}, bytes in: ${lane.bytes_in}, out: ${lane.bytes_out}`,
      }));
      const { since, reconnects } = state.status;
      const about = `user ${userOf(state.status)}, since ${since}, linked again: ${reconnects}`;
      return [{ label: '$(key) ready', description: open, detail: about }, ...lanes];
    }
  }
}
