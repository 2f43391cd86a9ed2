import { mkdir, mkdtemp, symlink, writeFile } from 'node:fs/promises';
import path from 'node:path';

import type { Lab } from './lab.ts';
import { type Output, good, run } from './run.ts';

/** A remote that has git and nothing else, with a home of its own and a repository that is pushed somewhere. */
export class GitRemote {
  readonly home: string;
  readonly env: NodeJS.ProcessEnv;
  readonly repository: string;

  private constructor(lab: Lab, folder: string) {
    this.home = path.join(folder, 'home');
    this.repository = path.join(folder, 'repository');
    this.env = {
      PATH: path.join(folder, 'bin'),
      HOME: this.home,
      TMPDIR: lab.target.env['TMPDIR'],
      LC_ALL: 'C',
      GIT_CONFIG_NOSYSTEM: '1',
      ...AUTHOR,
    };
  }

  static async make(lab: Lab): Promise<GitRemote> {
    const folder = await mkdtemp(path.join(lab.folder, 'r'));
    const remote = new GitRemote(lab, folder);
    for (const name of ['bin', 'home', 'repository']) {
      await mkdir(path.join(folder, name), { mode: 0o700 });
    }
    const git = (await good('sh', ['-c', 'command -v git'])).toString().trim();
    await symlink(git, path.join(folder, 'bin/git'));
    await remote.git('init', '--initial-branch=main');
    await remote.git('remote', 'add', 'origin', 'https://git.example/x.git');
    return remote;
  }

  /** git, which has to succeed. */
  async git(...words: readonly string[]): Promise<string> {
    return (await good('git', words, this.#options)).toString().trim();
  }

  /** git, whatever comes of it. */
  async tryGit(...words: readonly string[]): Promise<Output> {
    return run('git', words, this.#options);
  }

  /** A file in the home. */
  at(name: string): string {
    return path.join(this.home, name);
  }

  get #options() {
    return { env: this.env, cwd: this.repository };
  }
}

const AUTHOR = {
  GIT_AUTHOR_NAME: 'Lab',
  GIT_AUTHOR_EMAIL: 'lab@keybridge.example',
  GIT_COMMITTER_NAME: 'Lab',
  GIT_COMMITTER_EMAIL: 'lab@keybridge.example',
};

/** Has the host verify every commit and tag of a repository; `sshKey` is the one that may sign besides its own. */
export async function verifyOnHost(lab: Lab, repository: string, sshKey = ''): Promise<void> {
  const signers = path.join(lab.folder, 'signers');
  await writeFile(signers, sshKey && `* namespaces="git" ${sshKey}`);
  const env = { ...lab.host.env, GIT_CONFIG_NOSYSTEM: '1', GIT_CONFIG_GLOBAL: '/dev/null' };
  const git = async (...words: readonly string[]): Promise<string[]> => {
    const all = ['-c', `gpg.ssh.allowedSignersFile=${signers}`, ...words];
    const said = await good('git', all, { env, cwd: repository });
    return said.toString().split('\n').filter(Boolean);
  };
  await git('verify-commit', ...(await git('rev-list', '--all')));
  const tags = await git('tag');
  if (tags.length > 0) {
    await git('verify-tag', ...tags);
  }
}
