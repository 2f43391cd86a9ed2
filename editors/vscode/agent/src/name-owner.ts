/** Another extension, and what its manifest says. */
export interface Other {
  readonly id: string;
  readonly manifest: unknown;
}

/** The extension that owns the names of a prefix. A guess: the editor doesn't say who has a command. */
export interface Owner {
  readonly id: string;
  /** Whether the prefix is its own name, as an agent's is. */
  readonly isAgent: boolean;
}

/** Finds the extension that owns the commands of a prefix. */
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
