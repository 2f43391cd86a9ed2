import { after, afterEach, before } from 'node:test';

import type { Editor } from './editor.ts';
import { Lab } from './lab.ts';

/** Makes a lab for the tests of a suite, and closes the editor of each test after it. */
export const useLab = (take: (lab: Lab) => void, editorOfTest: () => Editor): void => {
  let lab: Lab | undefined;
  before(async () => {
    lab = await Lab.make();
    take(lab);
  });
  after(async () => {
    await lab?.clear();
  });
  afterEach(async () => {
    await editorOfTest().close();
  });
};
