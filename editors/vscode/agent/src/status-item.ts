import * as vscode from 'vscode';

import type { Shown } from './window.ts';

/** The item in the status bar: the state, and how many sessions are open. */
export class StatusItem {
  readonly #item: vscode.StatusBarItem;
  readonly #remote: string;

  constructor(remote: string) {
    this.#remote = remote;
    this.#item = vscode.window.createStatusBarItem('keybridge', vscode.StatusBarAlignment.Left, 0);
    this.#item.name = 'keybridge';
    this.#item.command = 'keybridge.showStatus';
    this.#item.show();
  }

  /** Shows a state. */
  show({ state, sessions }: Shown): void {
    const count = sessions > 0 ? ` ${sessions}` : '';
    this.#item.backgroundColor = undefined;
    switch (state.name) {
      case 'off':
        this.#say('$(circle-slash) keybridge', `keybridge is off for ${this.#remote}`);
        break;
      case 'starting':
        this.#say('$(loading~spin) keybridge', `keybridge: ${state.doing}`);
        break;
      case 'shared':
        this.#say(
          `$(key) keybridge${count}`,
          `${this.#remote} is bridged by another window; sessions: ${sessions}`,
        );
        break;
      case 'served':
        this.#say(
          `$(key) keybridge${count}`,
          `${this.#remote} uses the keys through another extension; sessions: ${sessions}`,
        );
        break;
      case 'ready':
        this.#say(`$(key) keybridge${count}`, `${this.#remote} is bridged; sessions: ${sessions}`);
        break;
      case 'waiting':
        this.#say(
          '$(loading~spin) keybridge',
          `the bridge to ${this.#remote} is down and will be restored: ${state.status.reason ?? ''}`,
        );
        break;
      case 'failed':
        this.#say('$(warning) keybridge', `keybridge: ${state.problem.message}`);
        this.#item.backgroundColor = new vscode.ThemeColor('statusBarItem.warningBackground');
    }
  }

  /** Removes the item. */
  dispose(): void {
    this.#item.dispose();
  }

  #say(text: string, tooltip: string): void {
    this.#item.text = text;
    this.#item.tooltip = tooltip;
    this.#item.accessibilityInformation = { label: tooltip };
  }
}
