/** The commands of keybridge-agent, as they are named behind its prefix. */
export const AGENT_COMMANDS = [
  'carry',
  'complain',
  'helperEnded',
  'connectAgent',
  'sendCommands',
  'disconnectAgent',
  'exportPublicKeys',
  'checkVersion',
];
