import assert from 'node:assert/strict';

import { eventually } from '../../lab/run.ts';
import { call, runTests } from './suite.ts';

/**
 * The whole chain with a relay in the browser's worker host: every call of one extension to the other
 * goes from the Node host to the worker and back, through the editor's own channel.
 */
export async function run(): Promise<void> {
  await runTests((lab) => {
    describe('between two hosts', () => {
      it('the relay is in a worker of the browser', async () => {
        await eventually('the relay is there', () =>
          call('_relay.about').then(
            () => true,
            () => false,
          ),
        );
        const { isWorker, hasNode } = await call('_relay.about');
        assert.deepEqual({ isWorker, hasNode }, { isWorker: true, hasNode: false });
      });

      it('the chain works', async () => {
        const { state } = await call('keybridge.start');
        assert.equal((state as { name: string }).name, 'ready', JSON.stringify(state));
        await lab.target.gpg(['--sign'], 'a text');
        const key = await lab.host.fingerprint();
        const seal = ['--trust-model', 'always', '--encrypt', '-r', key];
        const sealed = await lab.target.gpg(seal, 'a secret');
        assert.equal((await lab.target.gpg(['--decrypt'], sealed)).toString(), 'a secret');
        assert.equal(await lab.signedCommit(), 'G');
        const { calls } = await call('_relay.about');
        // gpg has made more than fifteen round trips by then, and each is a call both ways at least.
        assert.ok(Number(calls) > 30, `${String(calls)} calls went through the relay`);
      });

      it('three clients at once', async () => {
        await Promise.all(['a', 'b', 'c'].map((text) => lab.target.gpg(['--sign'], text)));
      });

      it('the command interface works, and every byte comes through', async () => {
        const { sessionId } = await call('_keybridge-agent.connectAgent');
        const [grip = ''] = await lab.host.keygrips();
        const steps = [`SIGKEY ${grip}`, `SETHASH 8 ${'AB'.repeat(32)}`];
        for (const step of steps) {
          const answer = await call('_keybridge-agent.sendCommands', sessionId, `${step}\n`);
          assert.equal(answer['response'], 'OK\n', step);
        }
        const { response } = await call('_keybridge-agent.sendCommands', sessionId, 'PKSIGN\n');
        assert.match(String(response), /^(?:S .*\n)*D \(7:sig-val/);
        await call('_keybridge-agent.disconnectAgent', sessionId);
        const late = call('_keybridge-agent.sendCommands', sessionId, 'NOP');
        await assert.rejects(late, /unknown session id/);
      });

      it('stops, and leaves nothing', async () => {
        await call('keybridge.stop');
        assert.ok(!lab.target.has('S.gpg-agent') && !lab.target.has('gpg.conf'));
      });
    });
  });
}
