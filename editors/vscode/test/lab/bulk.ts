/**
 * What a client says to the stand-in for gpg-agent to get that many bytes: lines that a bridge lets
 * pass, if the key is lent and may decrypt.
 */
export function bulkCommands(keygrip: string, size: number): string[] {
  return [`SETKEY ${keygrip}`, `SETKEYDESC ${size}`, 'PKDECRYPT'];
}
