/** The name of one session: a UUID in the usual form, and in that alone. */
export type SessionId = string & { readonly isSessionId: true };

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Takes what should be a session id, and says what is wrong with one that isn't. */
export function parseSessionId(value: unknown): SessionId {
  if (typeof value === 'string' && UUID.test(value)) {
    return value.toLowerCase() as SessionId;
  }
  const came = typeof value === 'string' ? `${value.length} characters` : typeof value;
  throw new Error(`malformed session id: expected a UUID, got ${came} that is none`);
}
