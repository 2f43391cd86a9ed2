/** The id of a session: a UUID in its usual form only. */
export type SessionId = string & { readonly isSessionId: true };

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Checks a session id; throws an error that says what is wrong with it. */
export function parseSessionId(value: unknown): SessionId {
  if (typeof value === 'string' && UUID.test(value)) {
    return value.toLowerCase() as SessionId;
  }
  const came = typeof value === 'string' ? `${value.length} characters` : typeof value;
  throw new Error(`malformed session id: expected a UUID, got ${came}`);
}
