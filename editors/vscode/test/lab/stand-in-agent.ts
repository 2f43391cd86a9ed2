/**
 * Stands in for gpg-agent where a real one can't be made to do what a test needs: it answers
 * `PKDECRYPT` with as many bytes in `D` lines as the last `SETKEYDESC` says.
 *
 * node stand-in-agent.ts SOCKET
 */
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';

const [socket = ''] = process.argv.slice(2);

createServer((connection) => {
  // A client may go at any time, which both are told.
  connection.on('error', () => undefined);
  connection.write('OK Pleased to meet you\n');
  let size = 0;
  const lines = createInterface(connection).on('error', () => undefined);
  lines.on('line', (line) => {
    const [verb = '', first = ''] = line.split(' ');
    switch (verb.toUpperCase()) {
      case 'SETKEYDESC':
        size = Number(first);
        connection.write('OK\n');
        break;
      case 'PKDECRYPT':
        bulk();
        break;
      case 'BYE':
        connection.end('OK closing connection\n');
        break;
      case 'GETINFO':
        connection.write(first === 'version' ? 'D 2.4.7\nOK\n' : 'OK\n');
        break;
      default:
        connection.write('OK\n');
    }
  });

  function bulk(): void {
    const line = Buffer.from(`D ${'x'.repeat(997)}\n`);
    let left = size;
    const more = (): void => {
      while (left > 0) {
        const now = Math.min(left, line.length);
        left -= now;
        // The last line may be a short one.
        const part =
          now === line.length ? line : Buffer.from(`D ${'x'.repeat(Math.max(1, now - 3))}\n`);
        if (!connection.write(part)) {
          connection.once('drain', more);
          return;
        }
      }
      connection.write('OK\n');
    };
    more();
  }
}).listen(socket, () => {
  console.log('listening');
});
