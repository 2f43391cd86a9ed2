import type { Socket } from 'node:net';

/** Calls the agent by its commands. */
export type CallAgent = <Result>(name: string, ...values: unknown[]) => Promise<Result>;

/** One client of the socket, and its session of the agent. */
export class Client {
  /** Resolves when the client and its session are gone. */
  readonly ended: Promise<void>;
  readonly #socket: Socket;
  readonly #agent: CallAgent;
  #session: string | undefined;
  #buffer = '';
  #isInquired = false;
  #isBusy = false;

  constructor(socket: Socket, agent: CallAgent) {
    this.#socket = socket;
    this.#agent = agent;
    socket.setEncoding('latin1');
    socket.on('error', () => undefined);
    socket.on('data', (text: string) => {
      this.#buffer += text;
      void this.#pass().catch(() => socket.destroy());
    });
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const connected = this.#connect().catch(() => socket.destroy());
    this.ended = closed.then(async () => {
      await connected;
      // Also in the middle of a command.
      if (this.#session !== undefined) {
        await agent('disconnectAgent', this.#session);
      }
    });
  }

  async close(): Promise<void> {
    this.#socket.destroy();
    await this.ended;
  }

  async #connect(): Promise<void> {
    const { sessionId, greeting } = await this.#agent<{ sessionId: string; greeting: string }>(
      'connectAgent',
    );
    this.#session = sessionId;
    this.#socket.write(greeting, 'latin1');
    this.#socket.resume();
  }

  /** Passes on what is whole, one after the other: a command, or the answer to an inquiry. */
  async #pass(): Promise<void> {
    if (this.#isBusy) {
      return;
    }
    this.#isBusy = true;
    for (let block = this.#take(); block !== undefined; block = this.#take()) {
      const { response } = await this.#agent<{ response: string }>(
        'sendCommands',
        this.#session,
        block,
      );
      this.#isInquired = /(?:^|\n)INQUIRE [^\n]*\n$/.test(response);
      this.#socket.write(response, 'latin1');
    }
    this.#isBusy = false;
  }

  #take(): string | undefined {
    const whole = this.#isInquired ? /^(?:[^]*\n)?(?:END|CAN)\n/ : /^[^\n]*\n/;
    const block = whole.exec(this.#buffer)?.[0];
    this.#buffer = this.#buffer.slice(block?.length ?? 0);
    return block;
  }
}
