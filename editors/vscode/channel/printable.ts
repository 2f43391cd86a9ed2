/** Makes a remote's text safe to show: escapes what controls, reorders or can't be seen. */
export function printable(text: string): string {
  return text.replace(
    /[\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/gu,
    (character) => {
      const code = character.codePointAt(0) ?? 0;
      return `\\u{${code.toString(16)}}`;
    },
  );
}

/** The same for a notification, where `[text](command:…)` would be a link that runs a command. */
export function notLinked(text: string): string {
  return printable(text).replaceAll('](', '] (');
}
