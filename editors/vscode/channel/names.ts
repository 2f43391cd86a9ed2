/** The prefix of keybridge-agent's commands. */
export const AGENT = '_keybridge-agent';

/** The prefix of keybridge-request's commands. */
export const REQUEST = '_keybridge-request';
