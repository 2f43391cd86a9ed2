import { asError } from '../../channel/crossing.ts';
import { Bridge, type BridgeState, type Host } from './bridge.ts';
import { CommandInterface } from './command-interface.ts';
import type { Answer, Consent } from './consent.ts';
import type { Started } from '../../channel/program.ts';
import type { Remote } from './remote.ts';
import { openSessions } from './status.ts';

/** How a window is: as its bridge is, or served without one. */
export type WindowState =
  | BridgeState
  /** keybridge-request is not in the remote, and another extension asks for the keys in its place. */
  | { readonly name: 'served' };

/** What a window shows. */
export interface Shown {
  readonly state: WindowState;
  readonly sessions: number;
  /** What else a person should know. */
  readonly notes: readonly string[];
}

/** The programs of this machine, as a window needs them. */
export interface Programs extends Host {
  startRpc(): Promise<Started>;
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
    this.bridge = new Bridge(programs, remote, changed, log);
    this.commands = new CommandInterface(() => programs.startRpc(), changed, log);
  }

  get shown(): Shown {
    const { state } = this.bridge;
    const bridged = 'status' in state ? openSessions(state.status) : 0;
    const isMissing = state.name === 'failed' && state.problem.fix.kind === 'install-request';
    return {
      state: isMissing && this.#servesOther ? { name: 'served' } : state,
      sessions: bridged + this.commands.sessions,
      notes: this.#notes,
    };
  }

  /** Starts by itself: after a yes, or when the question is answered with one. */
  async begin(): Promise<void> {
    if (await this.#decide(async () => this.consent.answer ?? this.consent.ask())) {
      await this.bridge.start();
    }
  }

  /** Starts when a person wants it; asks again if they haven't said yes. */
  async start(replace = false): Promise<Shown> {
    const isYes = this.consent.answer === 'yes';
    if (await this.#decide(async () => (isYes ? 'yes' : this.consent.ask()))) {
      await this.bridge.start(replace);
    }
    return this.shown;
  }

  /** Ends everything in this window, until it is started again. */
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

  /** Stops, and forgets that the remote may use the keys. */
  async forget(): Promise<void> {
    // The consent goes last: the end of the bridge takes some bytes of the remote.
    await this.stop();
    await this.consent.forget();
  }

  /** Lets bytes of the remote pass, or says why not. They go on while the bridge is being stopped. */
  checkConsent(): void {
    if (this.consent.answer !== 'yes') {
      throw new Error(
        'refused: nobody has consented that this remote may use the keys of this machine (keybridge: Start asks)',
      );
    }
  }

  /** Lets a command of another extension pass, or says why not. */
  check(): void {
    this.checkConsent();
    if (!this.#isOn) {
      throw new Error('refused: keybridge is stopped in this window (keybridge: Start starts it)');
    }
  }

  /** The same, and notes that another extension is being served. */
  serve(): void {
    this.check();
    if (!this.#servesOther) {
      this.#servesOther = true;
      this.#show(this.shown);
    }
  }

  /** Waits while a person is being asked whether the remote may use the keys. */
  async decided(): Promise<void> {
    await this.#deciding.catch(() => undefined);
  }

  /** Has something else shown. */
  note(notes: readonly string[]): void {
    this.#notes = notes;
    this.#show(this.shown);
  }

  /** Lets commands pass from the moment of a yes on. */
  #decide(ask: () => Promise<Answer | undefined>): Promise<boolean> {
    this.#deciding = ask().then((answer) => {
      this.#isOn ||= answer === 'yes';
      return answer === 'yes';
    });
    return this.#deciding;
  }
}
