import { ProgramMissing } from './program.ts';

/** The settings of the remote that can name a program or a folder that doesn't exist. */
const SETTINGS = ['keybridge.remote.program', 'keybridge.remote.gnupgFolder'];

/** What a command returns instead of throwing, if its caller decides by the kind of the failure. */
export interface Failed {
  readonly failed: Failure;
}

/** Why a program in the remote can't be run, and the setting to correct. */
export interface Failure {
  readonly kind: 'program-missing';
  readonly message: string;
  readonly setting: string;
}

/**
 * Returns a failure instead of throwing it. Between two extension hosts, the editor keeps only the text of
 * an error.
 */
export async function orFailed<T>(work: Promise<T>): Promise<T | Failed> {
  try {
    return await work;
  } catch (error) {
    if (error instanceof ProgramMissing) {
      const { message, setting } = error;
      return { failed: { kind: 'program-missing', message, setting } };
    }
    throw error;
  }
}

/** Reads such a failure. It comes from the remote, so only the known settings count. */
export function failureIn(value: unknown): Failure | undefined {
  const { failed } = (value ?? {}) as { failed?: Partial<Record<keyof Failure, unknown>> };
  const { kind, message, setting } = failed ?? {};
  const known = SETTINGS.find((name) => name === setting);
  if (kind !== 'program-missing' || typeof message !== 'string' || known === undefined) {
    return undefined;
  }
  return { kind, message, setting: known };
}
