import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

import * as vscode from 'vscode';

import { Lab } from '../../lab/lab.ts';
import type { Wish } from '../driver.ts';

/** Defines the tests of a suite. */
type Define = (lab: Lab) => void;

/** Stands before what a suite writes, so that it is told from what the editor writes. */
const MARK = 'keybridge-test: ';

/** Runs the tests in this extension host; rejects if one fails. */
export async function runTests(define: Define): Promise<void> {
  const { default: Mocha } = await import('mocha');
  const mocha = new Mocha({ ui: 'bdd', timeout: 120_000, reporter: 'min' });
  mocha.suite.emit('pre-require', globalThis as never, '', mocha);
  define(Lab.at(variable('KEYBRIDGE_LAB')));
  const failures = await new Promise<number>((resolve) => {
    report(mocha.run(resolve));
  });
  if (failures > 0) {
    throw new Error(`${failures} tests failed`);
  }
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

/** Says something where the test is run from. */
export function say(text: string): void {
  console.log(`${MARK}${text}`);
}

/** Has something done in the browser. */
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
