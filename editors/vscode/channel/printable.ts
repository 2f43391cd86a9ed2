/** Makes a remote's text safe to show: escapes control characters and changes of writing direction. */
export function printable(text: string): string {
  return text.replace(/\p{C}/gu, (character) => {
    const code = character.codePointAt(0) ?? 0;
    return `\\u{${code.toString(16)}}`;
  });
}

/** The same for a notification, where `[text](command:…)` would be a link that runs a command. */
export function notLinked(text: string): string {
  return printable(text).replaceAll('](', '] (');
}
