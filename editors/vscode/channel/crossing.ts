/** Runs a command by its name, in whichever extension host has it. */
export type Execute = (command: string, ...values: unknown[]) => PromiseLike<unknown>;

/**
 * Calls the other extension. Values cross as JSON text even if both share a process, so that what works
 * in one extension host also works between two.
 */
export async function cross(
  execute: Execute,
  command: string,
  ...values: unknown[]
): Promise<unknown> {
  const sent = values.map(throughText);
  return throughText(await execute(command, ...sent));
}

function throughText(value: unknown): unknown {
  return value === undefined ? undefined : (JSON.parse(JSON.stringify(value)) as unknown);
}

/** What was thrown, as an error. */
export function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(String(thrown));
}
