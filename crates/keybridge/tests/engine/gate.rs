//! Everything that people do with gpg in a container works through the gate, with gpg-agents of both
//! current branches at home, and only lines of its table reach them.

use std::path::Path;

use crate::lab::{
    Client, Container, Docker, FORBIDDEN, Home, Image, Recorder, eventually, is_allowed, lines,
    run, run_with, send_all, text, verbs, write_program,
};

/// The agent at home.
#[derive(Debug, Clone, Copy)]
enum Agent {
    /// That of this machine.
    Own,
    /// GnuPG 2.4, which runs in a container with the home mounted.
    Newer,
}

/// A host whose agent is recorded, and a container that is bridged.
struct Gated {
    docker: Docker,
    recorder: Recorder,
    /// Where the newer agent runs.
    _agent: Option<Container>,
}

impl Gated {
    fn new(agent: Agent, image: Image) -> Self {
        let docker = Docker::new(image, &[]);
        let host = &docker.lab.host;
        let (recorder, agent) = match agent {
            Agent::Own => (Recorder::before(host), None),
            Agent::Newer => {
                let real = host.file("S.real");
                let line = format!("extra-socket {}\n", real.display());
                std::fs::write(host.file("gpg-agent.conf"), line).unwrap();
                host.end_agents();
                let folder = docker.lab.folder().display();
                let container = Container::start(
                    Image::Trixie,
                    &[
                        "-v",
                        &format!("{folder}:{folder}"),
                        "-e",
                        &format!("GNUPGHOME={}", host.path().display()),
                    ],
                );
                container.sh(None, "gpgconf --launch gpg-agent");
                eventually("the agent listens", || real.exists());
                (Recorder::between(&host.extra_socket(), real), Some(container))
            }
        };
        Self { docker, recorder, _agent: agent }
    }

    fn sh(&self, script: &str) -> String {
        self.docker.container.sh(None, script)
    }
}

/// The keygrips that are lent: all but those of keys that only certify.
fn lent(gated: &Gated) -> Vec<String> {
    let host = &gated.docker.lab.host;
    let listing = run(&mut host.gpg(["-K", "--with-keygrip", "--with-colons"]));
    let (mut is_lent, mut lent) = (false, Vec::new());
    for line in text(&listing).lines() {
        let fields: Vec<&str> = line.split(':').collect();
        match fields[0] {
            "sec" | "ssb" => is_lent = fields[11].contains(['s', 'e']),
            "grp" if is_lent => lent.push(fields[9].to_owned()),
            _ => {}
        }
    }
    lent
}

/// A certificate at home for a new RSA key, trusted there; as a file for the container.
pub(crate) fn make_certificate(host: &Home) -> Vec<u8> {
    let words = ["--passphrase", "", "--quick-gen-key", "x509@keybridge.example", "rsa2048"];
    run(&mut host.gpg(words.into_iter().chain(["sign", "never"])));
    let keygrip = host.keygrips().pop().unwrap();
    let parameters = format!(
        "Key-Type: RSA\nKey-Grip: {keygrip}\nKey-Usage: sign\nSerial: random\n\
         Name-DN: CN=Lab\nName-Email: x509@keybridge.example\n"
    );
    let mut generate = host.command("gpgsm");
    let certificate = run_with(generate.args(["--batch", "--gen-key"]), parameters.as_bytes());
    let mut import = host.command("gpgsm");
    run_with(import.args(["--batch", "--disable-dirmngr", "--import"]), &certificate);
    let mut list = host.command("gpgsm");
    let listing = run(list.args(["--batch", "--disable-dirmngr", "-K", "--with-colons"]));
    let fingerprint = text(&listing)
        .lines()
        .find_map(|line| Some(line.strip_prefix("fpr:")?.split(':').nth(8)?.to_owned()))
        .unwrap();
    std::fs::write(host.file("trustlist.txt"), format!("{fingerprint} S relax\n")).unwrap();
    certificate
}

/// What people do, in a script each; all of it has to succeed.
const ERRANDS: [(&str, &str); 10] = [
    ("sign", "echo words | gpg --batch --sign | gpg --batch --decrypt 2>/dev/null | grep -q words"),
    ("clear-sign", "echo words | gpg --batch --clear-sign | gpg --batch --verify 2>/dev/null"),
    (
        "detached",
        "echo words >w; gpg --batch --yes --detach-sign w; gpg --batch --verify w.sig w 2>/dev/null",
    ),
    (
        "encrypt and decrypt",
        "echo words | gpg --batch --trust-model always -e -r lab@keybridge.example \
         | gpg --batch -d 2>/dev/null | grep -q words",
    ),
    (
        "list",
        "gpg --batch -K 2>errors | grep -q 'lab@keybridge.example'; ! grep -q 'fast path' errors",
    ),
    (
        "git commit",
        "git init -q r; cd r; git config user.email lab@keybridge.example; git config user.name Lab; \
         git commit -q --allow-empty -S -m x; git verify-commit HEAD 2>/dev/null",
    ),
    ("git tag", "cd r; git tag -s -m x v1; git verify-tag v1 2>/dev/null"),
    (
        "pass",
        "pass init lab@keybridge.example >/dev/null; echo hidden | pass insert -e site >/dev/null; \
         test \"$(pass show site)\" = hidden",
    ),
    ("GPGME", "python3 -c 'import gpg; c = gpg.Context(); s, _ = c.sign(b\"words\"); c.verify(s)'"),
    (
        "gpgsm",
        "echo words | gpgsm --batch --disable-dirmngr --disable-crl-checks --sign >s.p7m \
         && test -s s.p7m",
    ),
];

fn everything_works(agent: Agent, image: Image) {
    let gated = Gated::new(agent, image);
    let certificate = make_certificate(&gated.docker.lab.host);
    gated.docker.up(&[]);
    let import = "gpgsm --batch --disable-dirmngr --import 2>/dev/null";
    gated.docker.container.sh_with(None, import, &certificate);
    gated.recorder.clear();
    let mut transcript = String::new();
    for (errand, script) in ERRANDS {
        let done = gated.docker.container.try_sh(None, &format!("set -e; cd; {script}"));
        assert!(done.status.success(), "{errand}, {agent:?}, {image:?}: {done:?}");
        transcript.extend(["# ", errand, "\n"]);
        for line in gated.recorder.lines() {
            assert!(is_allowed(&line, &lent(&gated)), "{errand}: {line}");
            transcript.extend([if line.starts_with("D ") { "D ..." } else { &line }, "\n"]);
        }
        gated.recorder.clear();
    }
    // Mail to a key that has expired since is still read.
    let host = &gated.docker.lab.host;
    let primary = host.fingerprint();
    let words = ["--trust-model", "always", "-e", "-r", &primary];
    let mail = run_with(&mut host.gpg(words), b"old mail");
    for which in [&[][..], &["*"]] {
        run(&mut host.gpg(["--quick-set-expire", &primary, "seconds=1"].iter().chain(which)));
    }
    eventually("the key has expired", || {
        let listing = run(&mut host.gpg(["-K", "--with-colons", &primary]));
        text(&listing).lines().filter(|line| line.starts_with('s')).all(|line| line.contains(":e:"))
    });
    let read = gated.docker.container.sh_with(None, "gpg --batch -d 2>/dev/null", &mail);
    assert_eq!(text(&read), "old mail");
    gated.docker.down();
    if let Some(folder) = std::env::var_os("KEYBRIDGE_TRANSCRIPTS") {
        let name = format!("{agent:?}-{image:?}.txt").to_lowercase();
        std::fs::write(Path::new(&folder).join(name), transcript).unwrap();
    }
}

#[test]
fn everything_works_in_bookworm() {
    everything_works(Agent::Own, Image::Bookworm);
}

#[test]
fn everything_works_in_trixie() {
    everything_works(Agent::Own, Image::Trixie);
}

#[test]
fn everything_works_in_bookworm_with_a_newer_agent() {
    everything_works(Agent::Newer, Image::Bookworm);
}

#[test]
fn everything_works_in_trixie_with_a_newer_agent() {
    everything_works(Agent::Newer, Image::Trixie);
}

#[test]
fn only_lines_of_the_table_reach_a_newer_agent() {
    let gated = Gated::new(Agent::Newer, Image::Bookworm);
    gated.docker.up(&[]);
    let socket = gated.docker.container.path_from_outside("/root/.gnupg/S.gpg-agent");
    assert!(gated.sh("gpg-connect-agent 'GETINFO version' /bye").contains("D 2.4"));
    let host = &gated.docker.lab.host;
    let (lent, mut tried) = (lent(&gated), host.keygrips());
    tried.push("F".repeat(40));
    let lines = lines(&verbs(&host.socket()), &tried);
    gated.recorder.clear();
    send_all(&socket, &lines, lent.last().unwrap());
    let arrived = gated.recorder.lines();
    let passed: Vec<&String> = arrived.iter().filter(|line| !is_allowed(line, &lent)).collect();
    assert!(passed.is_empty(), "{passed:?}");
    assert!(Client::greeted(&socket).ask("NOP") == "OK\n");
    gated.docker.down();
}

/// A root that nobody has listed makes gpgsm ask whether it is to be trusted.
#[test]
fn a_certificate_of_an_unknown_root_opens_no_dialog_and_lends_nothing_more() {
    let docker = Docker::new(Image::Bookworm, &[]);
    let host = &docker.lab.host;
    let pinentry = docker.lab.at("pinentry");
    write_program(&pinentry, "#!/bin/sh\necho >\"${0%/*}/asked\"\nexit 1\n");
    let config = format!("pinentry-program {}\nallow-mark-trusted\n", pinentry.display());
    std::fs::write(host.file("gpg-agent.conf"), config).unwrap();
    let gated = Gated { recorder: Recorder::before(host), docker, _agent: None };
    make_certificate(&gated.docker.lab.host);
    let host = &gated.docker.lab.host;
    std::fs::remove_file(host.file("trustlist.txt")).unwrap();
    run(host.command("gpgconf").args(["--reload", "gpg-agent"]));
    gated.docker.up(&[]);
    let socket = gated.docker.container.path_from_outside("/root/.gnupg/S.gpg-agent");
    let mut client = Client::greeted(&socket);
    // It is an OpenPGP key as well, and lent as that.
    client.ask(format!("SIGKEY {}", host.keygrips().pop().unwrap()));
    assert_eq!(client.ask("SETHASH --inquire"), FORBIDDEN);
    drop(client);
    assert!(!gated.docker.lab.at("asked").exists(), "a dialog was opened");
    gated.docker.down();
}
