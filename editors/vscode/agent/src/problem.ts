/** What the button of a problem does. */
export type Fix =
  | { readonly kind: 'install-request' }
  | { readonly kind: 'open-setting'; readonly setting: string }
  | { readonly kind: 'show-extension'; readonly id: string }
  | { readonly kind: 'take-over' }
  | { readonly kind: 'start' }
  | { readonly kind: 'sync' }
  | { readonly kind: 'lend-new-keys' }
  | { readonly kind: 'try-again' };

/** What went wrong, and how to fix it. */
export class Problem extends Error {
  readonly fix: Fix;

  /** `JSON.stringify` leaves the message of an error out otherwise. */
  toJSON(): object {
    return { message: this.message, fix: this.fix };
  }

  constructor(message: string, fix: Fix = { kind: 'try-again' }) {
    super(message);
    this.fix = fix;
  }
}

/** An error of the host's program, as it prints it in JSON. */
export interface ProgramError {
  readonly kind: string;
  readonly message: string;
  readonly hints: readonly string[];
}

/** A problem that the host's program reports; `replaced` if it was to take the socket over already. */
export function problemOf({ kind, message, hints }: ProgramError, replaced = false): Problem {
  if (kind === 'in-use' && !replaced) {
    // The button does what the hints say.
    return new Problem(message, { kind: 'take-over' });
  }
  return new Problem(withHints(message, hints));
}

/** A message and what a person can do, in one line. */
export function withHints(message: string, hints: readonly string[]): string {
  return [message, ...hints].join('; ');
}
