import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';

import { eventually } from '../../lab/run.ts';
import type { StatusItem } from '../editor-window.ts';
import { call, runTests, wish } from './suite.ts';

/** A later window that a request extension of another maker serves: nobody is asked any more. */
export async function run(): Promise<void> {
  await runTests((lab) => {
    const shows = (words: string) =>
      eventually(`the status bar says ${words}`, async () =>
        ((await wish({ wish: 'status-item' })) as StatusItem).label.includes(words),
      );
    const sign = async () => {
      const key = await lab.host.fingerprint();
      // While nobody serves, gpg would start an agent of its own.
      const words = ['--no-autostart', '--sign', '--local-user', key];
      return lab.target.tryGpg(words, 'a text');
    };

    describe('a later window', () => {
      it('signs without a question', async () => {
        const socket = await lab.target.socket();
        await eventually('the socket is there', () => existsSync(socket));
        assert.equal((await sign()).code, 0);
        await shows('uses the keys through another extension');
      });

      it('says so in the status', async () => {
        const shown = call('keybridge.showStatus');
        await wish({ wish: 'see', text: 'another extension uses the keys' });
        await wish({ wish: 'dismiss' });
        await shown;
      });

      it('serves nobody when it is stopped, and again when it is started', async () => {
        await call('keybridge.stop');
        await shows('is off');
        assert.notEqual((await sign()).code, 0);
        await call('keybridge.start');
        assert.equal((await sign()).code, 0);
      });
    });
  });
}
