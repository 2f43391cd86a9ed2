/** One lane of a bridge, as the host's program reports it. */
export interface LaneStatus {
  readonly socket: string;
  readonly open: number;
  readonly total: number;
  readonly bytes_in: number;
  readonly bytes_out: number;
}

/** The status of a bridge, as the host's program reports it. */
export interface BridgeStatus {
  readonly state: 'starting' | 'ready' | 'waiting' | 'failed';
  /** Why it is in this state, if that needs a reason. */
  readonly reason?: string;
  readonly since: string;
  readonly user: string;
  readonly lanes: Readonly<Partial<Record<'gpg' | 'ssh', LaneStatus>>>;
  /** How many times the link was made again. */
  readonly reconnects: number;
  readonly version: string;
}

/** What a sync of public keys changed in the remote. */
export interface KeyChanges {
  readonly new: number;
  readonly updated: number;
  readonly unchanged: number;
  readonly warnings?: readonly string[];
}

/** A step of setting up the bridge. */
export type Step =
  | { readonly event: 'begun' | 'failed'; readonly doing: string }
  | {
      readonly event: 'done';
      readonly doing: string;
      readonly came: string;
      readonly millis: number;
    }
  | { readonly event: 'warning' | 'said'; readonly text: string };

/** A step as a line of a log. */
export function line(step: Step): string | undefined {
  switch (step.event) {
    case 'begun':
      return undefined;
    case 'done':
      return `✓ ${step.doing}${step.came ? `: ${step.came}` : ''} (${step.millis} ms)`;
    case 'failed':
      return `✗ ${step.doing}`;
    case 'warning':
      return `! ${step.text}`;
    case 'said':
      return step.text;
  }
}

/** How many clients are connected. */
export function openSessions(status: BridgeStatus | undefined): number {
  const { gpg, ssh } = status?.lanes ?? {};
  return (gpg?.open ?? 0) + (ssh?.open ?? 0);
}
