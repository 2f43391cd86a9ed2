import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import * as vscode from 'vscode';

import { USER } from '../../lab/home.ts';
import { whileStopped } from '../../lab/run.ts';
import { call, runTests, wish } from './suite.ts';

const OURS = '_keybridge-agent';
const PREFIXES = [OURS, '_gpg-bridge-agent', '_gpg-agent-proxy'];

const ARMOURED = /^-----BEGIN PGP PUBLIC KEY BLOCK-----/;

/** The command interface in the real extension host, as a request extension of another maker has it. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    before(async () => {
      await call('keybridge.start');
    });

    it('the other names are there only if a setting says so', async () => {
      const names = async () => {
        const all = await vscode.commands.getCommands();
        return PREFIXES.map((prefix) => all.filter((name) => name.startsWith(`${prefix}.`)).length);
      };
      assert.deepEqual(await names(), [8, 0, 0]);
      const { Global } = vscode.ConfigurationTarget;
      const settings = vscode.workspace.getConfiguration('keybridge');
      await settings.update('compatibleCommands', true, Global);
      assert.deepEqual(await names(), [8, 5, 5]);
    });

    for (const prefix of PREFIXES) {
      describe(prefix, () => {
        const connect = async () => {
          const connected = await call(`${prefix}.connectAgent`);
          assert.deepEqual(Object.keys(connected).sort(), ['greeting', 'sessionId']);
          return String(connected['sessionId']);
        };
        const send = async (session: string, block: string) => {
          const { response } = await call(`${prefix}.sendCommands`, session, block);
          return String(response);
        };

        it('greets', async () => {
          const { sessionId, greeting } = await call(`${prefix}.connectAgent`);
          assert.match(String(greeting), /^OK Pleased to meet you/);
          await call(`${prefix}.disconnectAgent`, sessionId);
        });

        it('answers, and a command that is not allowed resolves with ERR', async () => {
          const session = await connect();
          assert.match(await send(session, 'GETINFO version\n'), /^D \d+\.\d+\.\d+\nOK\n$/);
          const [grip] = await lab.host.keygrips();
          assert.equal(await send(session, `HAVEKEY ${grip ?? ''}\n`), 'OK\n');
          assert.match(
            await send(session, `HAVEKEY ${'0'.repeat(40)}\n`),
            /^ERR \d+ No secret key/,
          );
          for (const command of ['NOSUCHCOMMAND', 'GETINFO pid', 'KEYINFO --list']) {
            assert.match(await send(session, `${command}\n`), /^ERR \d+ Forbidden/, command);
          }
          assert.match(await send(session, 'BYE\n'), /^OK/);
          await assert.rejects(send(session, 'NOP\n'), /unknown session id/);
        });

        it('signs in full', async () => {
          const session = await connect();
          const [grip] = await lab.host.keygrips();
          const steps = [
            'RESET',
            `SIGKEY ${grip ?? ''}`,
            'SETKEYDESC A+test',
            `SETHASH 8 ${'AB'.repeat(32)}`,
          ];
          for (const step of steps) {
            assert.equal(await send(session, `${step}\n`), 'OK\n', step);
          }
          const signature = await send(session, 'PKSIGN\n');
          assert.match(signature, /^(?:S .*\n)*D \(7:sig-val/);
          assert.ok(signature.endsWith('\nOK\n'));
          await call(`${prefix}.disconnectAgent`, session);
        });

        it('keeps three sessions apart', async () => {
          const sessions = await Promise.all([connect(), connect(), connect()]);
          assert.equal(new Set(sessions).size, 3);
          const [grip] = await lab.host.keygrips();
          await send(sessions[0], `SIGKEY ${grip ?? ''}\n`);
          await call(`${prefix}.disconnectAgent`, sessions[1]);
          const answers = await Promise.all([send(sessions[0], 'NOP'), send(sessions[2], 'NOP')]);
          assert.deepEqual(answers, ['OK\n', 'OK\n']);
          await call(`${prefix}.disconnectAgent`, sessions[0]);
          await call(`${prefix}.disconnectAgent`, sessions[2]);
        });

        it('rejects ids that are none, and calls after the end', async () => {
          for (const id of ['', 'x', '../../etc', `{${randomUUID()}}`]) {
            await assert.rejects(send(id, 'NOP'), /malformed session id/);
          }
          await assert.rejects(send(randomUUID(), 'NOP'), /unknown session id/);
          const session = await connect();
          await call(`${prefix}.disconnectAgent`, session);
          await assert.rejects(send(session, 'NOP'), /unknown session id/);
          const again = call(`${prefix}.disconnectAgent`, session);
          if (prefix === OURS) {
            await assert.rejects(again, /unknown session id/);
          } else {
            assert.equal(await again, null);
          }
        });

        it('rejects a command while one is under way, and the first is not disturbed', async () => {
          const session = await connect();
          const agent = await lab.host.agentPid();
          const { first } = await whileStopped(agent, async () => {
            const first = send(session, 'NOP');
            await assert.rejects(send(session, 'NOP'), /is not Ready/);
            return { first };
          });
          assert.equal(await first, 'OK\n');
          await call(`${prefix}.disconnectAgent`, session);
        });

        it('ends a session while a command is under way', async () => {
          const session = await connect();
          const agent = await lab.host.agentPid();
          await whileStopped(agent, async () => {
            const rejected = assert.rejects(send(session, 'NOP'), /the caller ended it/);
            await call(`${prefix}.disconnectAgent`, session);
            await rejected;
          });
          await assert.rejects(send(session, 'NOP'), /unknown session id/);
        });
      });
    }

    describe('in our own shapes', () => {
      it('rejects a filter that matches nothing', async () => {
        const none = call(`${OURS}.exportPublicKeys`, 'nobody@keybridge.example');
        await assert.rejects(none, /no public key matches nobody@keybridge\.example/);
      });

      it('exports public keys and checks versions', async () => {
        const { armored, keys } = await call(`${OURS}.exportPublicKeys`, 'pairs');
        assert.match(String(armored), ARMOURED);
        const [key] = keys as { fingerprint: string }[];
        assert.equal(key?.fingerprint, await lab.host.fingerprint());
        const same = await call(`${OURS}.checkVersion`, '0.1.7');
        assert.equal(same['compatible'], true);
        assert.equal((await call(`${OURS}.checkVersion`, '9.0.0'))['compatible'], false);
        await assert.rejects(call(`${OURS}.checkVersion`, 'one'), /expected a version/);
      });
    });

    describe('in the shapes of others', () => {
      for (const prefix of PREFIXES.filter((one) => one !== OURS)) {
        const exported = (...filter: string[]): Promise<unknown> =>
          call(`${prefix}.exportPublicKeys`, ...filter);

        it(`${prefix} exports public keys as text`, async () => {
          assert.match(String(await exported('pairs')), ARMOURED);
          assert.equal(await exported('nobody@keybridge.example'), null);
        });

        it(`${prefix} has a person pick keys where there is no filter`, async () => {
          const picked = exported();
          await wish({ wish: 'see', text: USER });
          await wish({ wish: 'click', label: 'OK' });
          assert.match(String(await picked), ARMOURED);
          const cancelled = exported();
          await wish({ wish: 'see', text: USER });
          await wish({ wish: 'dismiss' });
          assert.equal(await cancelled, null);
        });

        it(`${prefix} checks versions without rejecting one`, async () => {
          assert.deepEqual(await call(`${prefix}.checkVersion`, '9.0.0'), { match: true });
          const { match, requestVersion } = await call(`${prefix}.checkVersion`, 'one');
          assert.deepEqual({ match, requestVersion }, { match: false, requestVersion: 'one' });
        });
      }
    });
  });
}
