import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { connect } from 'node:net';
import path from 'node:path';
import { createInterface } from 'node:readline';

import * as vscode from 'vscode';

import { Lab } from '../../lab/lab.ts';
import { good } from '../../lab/run.ts';
import type { Wish } from '../driver.ts';

/** Defines the tests of a suite. */
type Define = (lab: Lab) => void;

/** Runs the tests in this extension host; rejects if one fails. */
export async function runTests(define: Define): Promise<void> {
  const failures = await failuresOf(define).catch((error: unknown) => {
    say(`FAIL  ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
    return 1;
  });
  await telling;
  if (failures > 0) {
    throw new Error(`${failures} tests failed`);
  }
}

async function failuresOf(define: Define): Promise<number> {
  const { default: Mocha } = await import('mocha');
  const mocha = new Mocha({ ui: 'bdd', timeout: 120_000, reporter: 'min' });
  mocha.suite.emit('pre-require', globalThis as never, '', mocha);
  define(Lab.at(variable('KEYBRIDGE_LAB')));
  return new Promise((resolve) => {
    report(mocha.run(resolve));
  });
}

/** Tells each test as it ends. */
function report(runner: Mocha.Runner): void {
  runner.on('pass', (test) => {
    say(`ok    ${test.title} (${test.duration ?? 0} ms)`);
  });
  runner.on('fail', (test, error: Error) => {
    say(`FAIL  ${test.title}\n${error.stack ?? String(error)}`);
  });
}

let telling: Promise<unknown> = Promise.resolve();

/** Says something where the test is run from, one after the other. */
export function say(text: string): void {
  telling = telling.then(() => wish({ wish: 'say', text }));
}

/** Has something done where the test is run from, most of it in the browser. */
export async function wish(what: Wish): Promise<unknown> {
  const connection = connect(variable('KEYBRIDGE_DRIVER'));
  const lines = createInterface(connection);
  connection.write(`${JSON.stringify(what)}\n`);
  const [line] = (await once(lines, 'line')) as [string];
  connection.end();
  const { result, error } = JSON.parse(line) as { result?: unknown; error?: string };
  if (error) {
    throw new Error(`${what.wish}: ${error}`);
  }
  return result;
}

/** Runs a command with values that went through text, and gives back what came through text. */
export async function call(
  command: string,
  ...values: unknown[]
): Promise<Record<string, unknown>> {
  const sent = JSON.parse(JSON.stringify(values)) as unknown[];
  const result: unknown = await vscode.commands.executeCommand(command, ...sent);
  return JSON.parse(JSON.stringify(result ?? null)) as Record<string, unknown>;
}

/** Starts the bridge, which has to work: gpg's own agent is not to be measured. */
export async function bridgeIsUp(): Promise<void> {
  const { state } = await call('keybridge.start');
  assert.equal((state as { name: string }).name, 'ready', JSON.stringify(state));
}

/** A program beside the extension host. */
export class Program {
  /** The first line that it printed. */
  readonly line: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, line: string) {
    this.#child = child;
    this.line = line;
  }

  /** Starts it, and waits for its first line. */
  static async start(file: string, words: string[], env: NodeJS.ProcessEnv): Promise<Program> {
    const child = spawn(file, words, { env, stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(createInterface(child.stdout), 'line')) as [string];
    return new Program(child, line);
  }

  async end(): Promise<void> {
    if (this.#child.exitCode === null && this.#child.signalCode === null) {
      const ended = once(this.#child, 'exit');
      this.#child.kill('SIGTERM');
      await ended;
    }
  }
}

/** What `measure.ts` prints for each socket. */
export async function measure<T>(what: string, number: number, ...words: string[]): Promise<T[]> {
  const all = [path.join(labFolder(), 'measure.ts'), what, String(number), ...words];
  const said = (await good(process.execPath, all)).toString().trim();
  return said.split('\n').map((line) => JSON.parse(line) as T);
}

/** The folder of the programs that stand in or measure. */
export function labFolder(): string {
  return path.join(variable('KEYBRIDGE_TESTS'), 'lab');
}

export function ms(millis: number): string {
  return `${millis.toFixed(3)} ms`;
}

/** What the runner has said about itself. */
export function variable(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set: the suite is not run by its runner`);
  }
  return value;
}
