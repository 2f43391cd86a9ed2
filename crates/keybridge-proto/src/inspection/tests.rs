use super::*;

fn full() -> Inspection {
    let setting =
        |value: &str| Some(GitSetting { value: value.into(), file: "/home/a b/.gitconfig".into() });
    let subkey = |expires| Subkey { fingerprint: "B".repeat(40), validity: 'e', expires };
    let key = PublicKey {
        validity: 'u',
        ownertrust: Some(6),
        expires: Some(1_900_000_000),
        is_revoked: true,
        subkeys: vec![subkey(Some(7)), subkey(None)],
        user_ids: vec![UserId { hash: "C".repeat(40), validity: '-' }],
    };
    let keys = [
        KeyStatus::Present(key.clone()),
        KeyStatus::Missing,
        KeyStatus::Unknown("gpg hangs".into()),
        KeyStatus::Present(PublicKey {
            ownertrust: None,
            expires: None,
            is_revoked: false,
            subkeys: vec![],
            ..key
        }),
    ];
    let starter = |kind: StarterKind| AgentStarter {
        kind,
        name: format!("the {} % one", kind.word()),
        fix: format!("remove the {} one", kind.word()),
    };
    Inspection {
        helper: "1.2.3".into(),
        processor: "x86_64".into(),
        user: "dév".into(),
        uid: Some(1000),
        home: Some("/home/a b".into()),
        gnupg: Some(GnupgFacts {
            program: "/usr/bin/gpg".into(),
            version: Ok("2.4.7".into()),
            home: Some("/home/a b/.gnupg".into()),
            has_home: true,
            home_problem: Some(HomeProblem {
                kind: HomeProblemKind::TooOpen,
                message: "it is too open".into(),
                fix: Some("chmod 700 '/home/a b/.gnupg'".into()),
            }),
        }),
        lanes: PerLane {
            gpg: LaneFacts {
                socket: Some("/run/user/1000/gnupg/S.gpg-agent %".into()),
                listener: Listener::Helper {
                    pid: Some(7),
                    version: Some("1.2.2".into()),
                    is_link_up: Some(false),
                    bridge: Some("0123abcd".into()),
                },
                is_set_up: Some(true),
                starters: StarterKind::ALL.map(starter).into(),
                lock: Some(LockFacts {
                    is_held: true,
                    pid: Some(7),
                    bridge: Some("0123abcd".into()),
                }),
                problem: Some("not usable".into()),
            },
            ssh: LaneFacts {
                listener: Listener::Agent {
                    pid: Some(8),
                    program: Some("ssh-agent".into()),
                    has_secret_keys: Some(true),
                },
                is_set_up: Some(false),
                lock: Some(LockFacts { is_held: false, pid: None, bridge: None }),
                ..LaneFacts::default()
            },
        },
        keys: keys
            .map(|status| KeyFacts { fingerprint: "A".repeat(40), status })
            .into_iter()
            .collect(),
        git: Some(GitFacts {
            version: Ok("2.39.5".into()),
            problem: Some("a bad line".into()),
            email: setting("a@b.example"),
            signing_key: setting("key with spaces"),
            format: setting("ssh"),
            sign_commits: setting("true"),
            gpg_program: setting(""),
        }),
        signature: Some(SignatureOutcome {
            fingerprint: "A".repeat(40),
            result: Ok(Duration::from_millis(31)),
        }),
    }
}

#[test]
fn an_inspection_round_trips() {
    let nothing = Inspection::default();
    assert_eq!(Inspection::parse(&nothing.to_bytes()), Some(nothing.clone()));
    let full = full();
    assert_eq!(Inspection::parse(&full.to_bytes()), Some(full));
    let helper = Listener::Helper { pid: None, version: None, is_link_up: None, bridge: None };
    let agent = Listener::Agent { pid: None, program: None, has_secret_keys: None };
    let unknown = Listener::Unknown("says nothing at all".into());
    for listener in [Listener::Nobody, Listener::Stale, helper, agent, unknown] {
        let mut found = nothing.clone();
        found.lanes.ssh.listener = listener;
        assert_eq!(Inspection::parse(&found.to_bytes()), Some(found));
    }
    for kind in HomeProblemKind::ALL {
        let (message, fix) = ("why".into(), None);
        let found = Inspection {
            gnupg: Some(GnupgFacts {
                program: "gpg".into(),
                version: Err("gpg hangs".into()),
                home: None,
                has_home: false,
                home_problem: Some(HomeProblem { kind, message, fix }),
            }),
            git: Some(GitFacts::new(Err("git hangs".into()))),
            signature: Some(SignatureOutcome {
                fingerprint: "A".into(),
                result: Err("no secret key".into()),
            }),
            ..nothing.clone()
        };
        assert_eq!(Inspection::parse(&found.to_bytes()), Some(found));
    }
}

#[test]
fn what_comes_before_and_what_is_unknown_is_ignored() {
    let full = full();
    let text = full.to_bytes();
    let noise = [b"Welcome to\nuser eve\nend \n".as_slice(), &text, b"user eve\n"].concat();
    assert_eq!(Inspection::parse(&noise), Some(full));
    let odd =
        b"inspection 1\nuid x\nkey-subkey u A\ngit-setting user.email a\nfuture 1\nhome %zz\n\
        gpg-future 1\ngpg-listener future\ngpg-lock-pid 1\ngpg-starter future x\n\xff\nx-y 1\n\
        gpg-set-up maybe\nsignature-ms 1\ngnupg-home /\nssh-starter-fix rm\nend \n";
    let expected = Inspection { helper: "1".into(), ..Inspection::default() };
    assert_eq!(Inspection::parse(odd), Some(expected));
}

#[test]
fn a_text_that_is_cut_is_none() {
    let text = full().to_bytes();
    for end in 0..text.len() - "end \n".len() {
        assert_eq!(Inspection::parse(&text[..end]), None, "{end}");
    }
    let endless = [text.as_slice(), b"inspection 1\n"].concat();
    assert!(Inspection::parse(&endless).is_some());
    assert_eq!(Inspection::parse(&vec![b'a'; Inspection::MAX_SIZE + 1]), None);
    let late =
        [b"inspection 1\n".as_slice(), &vec![b'\n'; Inspection::MAX_SIZE], b"end \n"].concat();
    assert_eq!(Inspection::parse(&late), None);
}

#[test]
fn texts_are_cut_and_printable_and_lists_are_bounded() {
    for odd in ["\u{1}".repeat(2000), "u".repeat(4 << 10), "\u{202e}".repeat(1000)] {
        let mut text = b"inspection 1\n".to_vec();
        let mut add = |name: &str, value: &str| crate::report::put(&mut text, name, value);
        add("user", &odd);
        for _ in 0..Inspection::MOST_STARTERS + 3 {
            add("gpg-starter", "gpg-conf first");
            add("gpg-starter-fix", "first");
        }
        add("gpg-starter", &format!("gpg-conf {odd}"));
        add("gpg-starter-fix", "another");
        for _ in 0..Inspection::MOST_KEYS + 3 {
            add("key", "A");
        }
        add("key-status", "present u");
        for _ in 0..Inspection::MOST_PARTS + 3 {
            add("key-subkey", "u A");
            add("key-user-id", "u A");
        }
        add("end", "");
        let found = Inspection::parse(&text).unwrap();
        assert!(found.user.len() <= TEXT);
        assert_eq!(crate::printable(&found.user).to_string(), found.user);
        assert_eq!(found.lanes.gpg.starters.len(), Inspection::MOST_STARTERS);
        assert!(found.lanes.gpg.starters.iter().all(|starter| starter.fix == "first"));
        assert_eq!(found.keys.len(), Inspection::MOST_KEYS);
        let KeyStatus::Present(key) = &found.keys.last().unwrap().status else { panic!() };
        assert_eq!(key.subkeys.len(), Inspection::MOST_PARTS);
        assert_eq!(key.user_ids.len(), Inspection::MOST_PARTS);
    }
}

#[test]
fn a_long_text_does_not_make_the_rest_unreadable() {
    let long = "ä%".repeat(Inspection::MAX_SIZE);
    let facts = Inspection { home: Some(long.clone()), user: long, ..full() };
    let read = Inspection::parse(&facts.to_bytes()).unwrap();
    assert!(read.user.starts_with("ä%") && read.user.len() <= TEXT, "{}", read.user.len());
    assert_eq!((read.keys, read.signature), (facts.keys, facts.signature));
}
