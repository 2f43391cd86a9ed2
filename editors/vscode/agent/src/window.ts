import { asError } from '../../channel/crossing.ts';
import { Bridge, type BridgeState, type Host } from './bridge.ts';
import { CommandInterface } from './command-interface.ts';
import type { Answer, Consent } from './consent.ts';
import type { Started } from '../../channel/program.ts';
import type { Remote } from './remote.ts';
import { heldBack, noteOfNew, openSessions } from './status.ts';

/** The state of a window: that of its bridge, or served without one. */
export type WindowState =
  | BridgeState
  /** keybridge-request isn't in the remote, and another extension uses the keys instead. */
  | { readonly name: 'served' };

/** What a window shows. */
export interface Shown {
  readonly state: WindowState;
  readonly sessions: number;
  /** How many keys of this machine aren't lent since they are new, as far as is known. */
  readonly newKeys: number;
  /** What else a person should know. */
  readonly notes: readonly string[];
}

/** What a window needs of the programs on this machine. */
export interface Programs extends Host {
  /** Starts `keybridge rpc`, with the file that says what it may lend at most. */
  startRpc(ceiling: string): Promise<Started>;
}

/** One window with a remote: its consent, its bridge, and the commands of others. */
export class Window {
  readonly consent: Consent;
  readonly bridge: Bridge;
  readonly commands: CommandInterface;
  readonly #show: (shown: Shown) => void;
  #isOn = false;
  #servesOther = false;
  #deciding: Promise<boolean> = Promise.resolve(false);
  #notes: readonly string[] = [];

  constructor(
    consent: Consent,
    programs: Programs,
    remote: Remote,
    show: (shown: Shown) => void,
    log: (line: string) => void,
  ) {
    this.consent = consent;
    this.#show = show;
    const changed = (): void => {
      show(this.shown);
    };
    this.bridge = new Bridge(programs, remote, consent.ceiling, changed, log);
    this.commands = new CommandInterface(
      () => programs.startRpc(consent.ceiling.path),
      changed,
      log,
    );
  }

  get shown(): Shown {
    const { state } = this.bridge;
    const bridged = 'status' in state ? openSessions(state.status) : 0;
    const newKeys = 'status' in state ? heldBack(state.status) : 0;
    const isMissing = state.name === 'failed' && state.problem.fix.kind === 'install-request';
    return {
      state: isMissing && this.#servesOther ? { name: 'served' } : state,
      sessions: bridged + this.commands.sessions,
      newKeys,
      notes: [...this.#notes, ...noteOfNew(newKeys)],
    };
  }

  /** Starts if the answer is yes; asks if there is none yet. */
  async begin(): Promise<void> {
    if (await this.#decide(async () => this.consent.answer ?? this.consent.ask())) {
      await this.bridge.start();
    }
  }

  /** Starts at the person's request; asks again unless the answer is yes. */
  async start(replace = false): Promise<Shown> {
    const isYes = this.consent.answer === 'yes';
    if (await this.#decide(async () => (isYes ? 'yes' : this.consent.ask()))) {
      await this.bridge.start(replace);
    }
    return this.shown;
  }

  /** Stops everything in this window until it is started again. */
  async stop(): Promise<void> {
    this.#isOn = false;
    this.#servesOther = false;
    const ends = await Promise.allSettled([this.bridge.stop(), this.commands.end()]);
    this.#show(this.shown);
    for (const end of ends) {
      if (end.status === 'rejected') {
        throw asError(end.reason);
      }
    }
  }

  /** Stops, and withdraws the consent. */
  async forget(): Promise<void> {
    // Withdrawn last: stopping the bridge still exchanges bytes with the remote.
    await this.stop();
    await this.consent.forget();
  }

  /** Lends what is new on this machine too, if the person says so; whether it is lent. */
  async lendNewKeys(ask: () => Promise<boolean>): Promise<boolean> {
    this.check();
    return this.consent.askForNew(ask);
  }

  /** Throws unless the remote's bytes may pass. They may while the bridge is being stopped. */
  checkConsent(): void {
    if (this.consent.answer !== 'yes') {
      throw new Error(
        'refused: nobody has allowed this remote to use the keys of this machine (run "keybridge: Start")',
      );
    }
  }

  /** Throws unless another extension's command may pass. */
  check(): void {
    this.checkConsent();
    if (!this.#isOn) {
      throw new Error('refused: keybridge is stopped in this window (run "keybridge: Start")');
    }
  }

  /** The same, and notes that another extension uses the keys. */
  serve(): void {
    this.check();
    if (!this.#servesOther) {
      this.#servesOther = true;
      this.#show(this.shown);
    }
  }

  /** Waits for the answer, if the person is being asked for consent. */
  async decided(): Promise<void> {
    await this.#deciding.catch(() => undefined);
  }

  /** Sets the notes that are shown. */
  note(notes: readonly string[]): void {
    this.#notes = notes;
    this.#show(this.shown);
  }

  /** Lets commands pass from a yes on. */
  #decide(ask: () => Promise<Answer | undefined>): Promise<boolean> {
    this.#deciding = ask().then((answer) => {
      this.#isOn ||= answer === 'yes';
      return answer === 'yes';
    });
    return this.#deciding;
  }
}
