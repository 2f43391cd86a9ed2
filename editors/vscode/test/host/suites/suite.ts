import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

import * as vscode from 'vscode';

import { Lab } from '../../lab/lab.ts';
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
  await wish({ wish: 'end', failures });
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

/** What the runner has said about itself. */
export function variable(name: string): string {
  const value = process.env[name];
  if (!value) {
    throw new Error(`${name} is not set: the suite is not run by its runner`);
  }
  return value;
}
