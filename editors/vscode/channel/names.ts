/** What the commands of keybridge-agent begin with. */
export const AGENT = '_keybridge-agent';

/** What the commands of keybridge-request begin with. */
export const REQUEST = '_keybridge-request';
