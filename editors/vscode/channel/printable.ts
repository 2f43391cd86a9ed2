/** Makes text of a remote fit to be shown: no control characters, no marks that turn writing round. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u{${code.toString(16)}}`;
  });
}

/** The same for a notification, where `[text](command:…)` would be a link that does something. */
export function notLinked(text: string): string {
  return printable(text).replaceAll('](', '] (');
}
