/** Takes the place of the names for an agent whose calls go through the relay. */
export const AGENT = '_far-agent';
export const REQUEST = '_near-request';
