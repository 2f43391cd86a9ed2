import { mkdtemp, mkdir, rm } from 'node:fs/promises';
import { userInfo } from 'node:os';
import path from 'node:path';

import { Home } from './home.ts';
import { good } from './run.ts';
import { script } from './script.ts';

/** The folder with both programs. */
export function programs(): string {
  const chosen = process.env['KEYBRIDGE_PROGRAMS'];
  if (!chosen) {
    throw new Error('KEYBRIDGE_PROGRAMS has to name the folder of keybridge and keybridge-remote');
  }
  return chosen;
}

/** Two GnuPG homes in a folder of their own: the host's, and the remote's, which starts empty. */
export class Lab {
  readonly folder: string;
  readonly host: Home;
  readonly target: Home;

  private constructor(folder: string) {
    this.folder = folder;
    const [home, tmp] = [path.join(folder, 'home'), path.join(folder, 'tmp')];
    this.host = new Home(path.join(folder, 'h'), home, tmp);
    this.target = new Home(path.join(folder, 't'), home, tmp);
  }

  /** A lab that another process has made. */
  static at(folder: string): Lab {
    return new Lab(folder);
  }

  /** A lab whose host has a key, if that is wanted. */
  static async make({ withKey = true } = {}): Promise<Lab> {
    // Short: a socket's path may have 107 bytes.
    const lab = new Lab(await mkdtemp('/tmp/kbv'));
    for (const name of ['home', 'tmp', 'h', 't', 'state']) {
      await mkdir(path.join(lab.folder, name), { mode: 0o700 });
    }
    if (withKey) {
      await lab.host.makeKey();
    }
    return lab;
  }

  /** What the programs of the host find in their environment. */
  get hostEnvironment(): NodeJS.ProcessEnv {
    return {
      ...this.host.env,
      KEYBRIDGE_STATE: path.join(this.folder, 'state'),
      XDG_CONFIG_HOME: path.join(this.folder, 'home'),
    };
  }

  /** A commit in a new repository, signed with the remote's gpg; its verification. */
  async signedCommit(): Promise<string> {
    const repository = await mkdtemp(path.join(this.folder, 'repository-'));
    const env = {
      ...this.target.env,
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_GLOBAL: '/dev/null',
      GIT_AUTHOR_NAME: 'Lab',
      GIT_AUTHOR_EMAIL: 'lab@keybridge.example',
      GIT_COMMITTER_NAME: 'Lab',
      GIT_COMMITTER_EMAIL: 'lab@keybridge.example',
    };
    const options = { env, cwd: repository };
    await good('git', ['init', '--quiet'], options);
    const key = `user.signingKey=${await this.host.fingerprint()}`;
    const words = ['-c', key, 'commit', '--quiet', '--allow-empty', '-S', '-m', 'Signed'];
    await good('git', words, options);
    return (await good('git', ['log', '--format=%G?', '-1'], options)).toString().trim();
  }

  /** One more home, with a key. Its agents are to be ended before the lab is cleared. */
  async otherHome(user: string): Promise<Home> {
    const folder = await mkdtemp(path.join(this.folder, 'o'));
    const other = new Home(folder, path.join(this.folder, 'home'), path.join(this.folder, 'tmp'));
    await other.makeKey(user);
    return other;
  }

  /** The public half of a key that no home here has the secret half of. */
  async otherKey(): Promise<Buffer> {
    const other = await this.otherHome('Other <other@keybridge.example>');
    const key = await other.gpg(['--export']);
    await other.endAgents();
    return key;
  }

  /** A script that is a program with a home of its own, whatever the system says. */
  async inOtherHome(program: string): Promise<{ file: string; home: string }> {
    const home = await mkdtemp(path.join(this.folder, 'u'));
    const text = `exec unshare --mount sh -c 'mount --bind ${home} ${userInfo().homedir} && exec ${program} "$@"' sh "$@"`;
    return { file: await script(this.folder, `${path.basename(home)}.sh`, text), home };
  }

  /** Ends every agent and removes everything. */
  async clear(): Promise<void> {
    await Promise.all([this.host.endAgents(), this.target.endAgents()]);
    await rm(this.folder, { recursive: true, force: true, maxRetries: 5 });
  }
}
