import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

import { eventually } from '../../lab/run.ts';
import { call, runTests, wish } from './suite.ts';

/** Public keys and how they get to the remote, in the real extension host. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const sync = async (...keys: string[]) => {
      const changes = await call('keybridge.syncPublicKeys', keys);
      return {
        new: changes['new'],
        updated: changes['updated'],
        unchanged: changes['unchanged'],
        warnings: changes['warnings'],
      };
    };
    const unchanged = (count: number, ...warnings: string[]) => ({
      new: 0,
      updated: 0,
      unchanged: count,
      warnings,
    });

    describe('public keys', () => {
      before(async () => {
        await call('keybridge.start');
      });

      it('that were sent at the start are unchanged', async () => {
        assert.deepEqual(await sync('pairs'), unchanged(1));
      });

      it('are sent by their fingerprint', async () => {
        await lab.host.makeKey('Second <second@keybridge.example>');
        const [, second = ''] = await lab.host.fingerprints();
        const added = { new: 1, updated: 0, unchanged: 0, warnings: [] };
        assert.deepEqual(await sync(second), added);
        assert.ok((await lab.target.fingerprints()).includes(second));
        assert.deepEqual(await sync(second), unchanged(1));
      });

      it('are sent by an address', async () => {
        assert.deepEqual(await sync('second@keybridge.example'), unchanged(1));
      });

      it('are sent by a list, and one that is not there is named', async () => {
        const first = await lab.host.fingerprint();
        assert.deepEqual(
          await sync(first, 'second@keybridge.example', 'nobody@keybridge.example'),
          unchanged(2, 'no public key matches nobody@keybridge.example'),
        );
      });

      it('whose secret half is elsewhere stay at home, as the setting has it', async () => {
        const other = await lab.otherKey();
        await lab.host.gpg(['--import'], other);
        assert.deepEqual(await sync('pairs'), unchanged(2));
        assert.deepEqual(
          await sync('all'),
          unchanged(2, "1 key isn't sent: the setting keys doesn't allow it"),
        );
      });

      it('are picked from a list', async () => {
        const picked = call('keybridge.syncPublicKeys');
        await wish({ wish: 'see', text: 'Second <second@keybridge.example>' });
        await wish({ wish: 'click', label: 'OK' });
        const changes = await picked;
        assert.deepEqual([changes['new'], changes['unchanged']], [0, 2]);
        await wish({ wish: 'see', text: 'keys: 0 new, 0 updated, 2 unchanged' });
      });

      it('are not sent while the bridge is stopped, and a button starts it', async () => {
        await call('keybridge.stop');
        assert.equal(await call('keybridge.syncPublicKeys'), null);
        // With the driver of tests switched on the editor shows notifications in their list alone.
        await call('notifications.showList');
        await wish({ wish: 'see', text: 'refused: keybridge is stopped in this window' });
        await wish({ wish: 'click', label: 'Start' });
        const socket = await lab.target.socket();
        await eventually('the socket is there', () => existsSync(socket));
        await call('keybridge.start');
      });

      it('that can not be had are an error of the call alone', async () => {
        assert.deepEqual(await sync('nobody@'), unchanged(0, 'no public key matches nobody@'));
        await lab.target.gpg(['--sign'], 'still there');
      });
    });
  });
}
