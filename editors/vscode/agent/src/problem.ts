/** What a person can do about a problem with one button. */
export type Fix =
  | { readonly kind: 'install-request' }
  | { readonly kind: 'open-setting'; readonly setting: string }
  | { readonly kind: 'show-extension'; readonly id: string }
  | { readonly kind: 'take-over' }
  | { readonly kind: 'start' }
  | { readonly kind: 'sync' }
  | { readonly kind: 'try-again' };

/** What went wrong, with the way out. */
export class Problem extends Error {
  readonly fix: Fix;

  /** What crosses to others: the text of an error isn't part of it by itself. */
  toJSON(): object {
    return { message: this.message, fix: this.fix };
  }

  constructor(message: string, fix: Fix = { kind: 'try-again' }) {
    super(message);
    this.fix = fix;
  }
}

/** An error of the host's program, as it says it. */
export interface ProgramError {
  readonly message: string;
  readonly hints: readonly string[];
}

/** A problem that the host's program has named. */
export function problemOf({ message, hints }: ProgramError): Problem {
  const replaceable = hints.some((hint) => hint.includes('--replace'));
  // The button says it.
  const shown = hints.filter((hint) => !hint.includes('--replace'));
  const text = [message, ...shown].join('; ');
  return new Problem(text, replaceable ? { kind: 'take-over' } : { kind: 'try-again' });
}
