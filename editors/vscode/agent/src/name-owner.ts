/** Another extension, and what its manifest says. */
export interface Other {
  readonly id: string;
  readonly manifest: unknown;
}

/** Whose the names of a prefix are, as far as can be told: the editor doesn't say who has a command. */
export interface Owner {
  readonly id: string;
  /** Whether the names are made from its own, as those of an agent are. */
  readonly isAgent: boolean;
}

/** Finds the extension that the commands of a prefix belong to. */
export function ownerOf(prefix: string, others: readonly Other[]): Owner | undefined {
  const agent = others.find(({ manifest }) => `_${String(field(manifest, 'name'))}` === prefix);
  if (agent) {
    return { id: agent.id, isAgent: true };
  }
  const starting = `onCommand:${prefix}.`;
  const other = others.find(({ manifest }) => {
    const events = field(manifest, 'activationEvents');
    return Array.isArray(events) && events.some((event) => String(event).startsWith(starting));
  });
  return other && { id: other.id, isAgent: false };
}

function field(manifest: unknown, name: string): unknown {
  return (manifest as Record<string, unknown> | null | undefined)?.[name];
}
