use super::*;

fn full() -> Inspection {
    let setting = |value: &str| {
        Some(GitSetting { value: value.into(), file: Some("/a b/.gitconfig".into()) })
    };
    let subkey = |expires| Subkey { fingerprint: "B".repeat(40), expires };
    let key = PublicKey {
        ownertrust: Some(6),
        expires: Some(1_900_000_000),
        subkeys: vec![subkey(Some(7)), subkey(None)],
        user_ids: vec!["C".repeat(40)],
    };
    let keys = [
        KeyStatus::Present(key.clone()),
        KeyStatus::Missing,
        KeyStatus::Unknown("gpg hangs".into()),
        KeyStatus::Present(PublicKey { ownertrust: None, expires: None, subkeys: vec![], ..key }),
    ];
    let starter = |kind: StarterKind| AgentStarter {
        kind,
        name: format!("the {kind:?} % one"),
        fix: format!("remove the {kind:?} one"),
    };
    Inspection {
        user: User { name: Some("dév".into()), uid: 1000 },
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
                listener: Listener::Helper { pid: Some(7), version: Some("1.2.2".into()) },
                is_set_up: Some(true),
                starters: [
                    StarterKind::SystemdUnit,
                    StarterKind::GpgConf,
                    StarterKind::SshAuthSock,
                ]
                .map(starter)
                .into(),
                problem: Some("not usable".into()),
            },
            ssh: LaneFacts {
                listener: Listener::Agent {
                    pid: Some(8),
                    program: Some("ssh-agent".into()),
                    has_secret_keys: Some(true),
                },
                is_set_up: Some(false),
                ..LaneFacts::default()
            },
            git: LaneFacts::default(),
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
            ssh_program: Some(GitSetting { value: "/x".into(), file: None }),
            entries: vec!["/x".into()],
        }),
        signature: Some(SignatureOutcome {
            fingerprint: "A".repeat(40),
            result: Ok(Duration::from_millis(31)),
        }),
    }
}

fn nothing() -> Inspection {
    Inspection {
        user: User { name: None, uid: 0 },
        gnupg: None,
        lanes: PerLane::default(),
        keys: vec![],
        git: None,
        signature: None,
    }
}

#[test]
fn an_inspection_round_trips() {
    let full = full();
    assert_eq!(Inspection::parse(&full.to_bytes()), Ok(full));
    let helper = Listener::Helper { pid: None, version: None };
    let agent = Listener::Agent { pid: None, program: None, has_secret_keys: None };
    let unknown = Listener::Unknown("says nothing at all".into());
    for listener in [Listener::Nobody, helper, agent, unknown] {
        let mut found = nothing();
        found.lanes.ssh.listener = listener;
        assert_eq!(Inspection::parse(&found.to_bytes()), Ok(found));
    }
    let found = Inspection {
        git: Some(GitFacts::new(Err("git hangs".into()))),
        signature: Some(SignatureOutcome {
            fingerprint: "A".into(),
            result: Err("no secret key".into()),
        }),
        ..nothing()
    };
    assert_eq!(Inspection::parse(&found.to_bytes()), Ok(found));
}

#[test]
fn what_a_login_shell_prints_is_passed_over() {
    let full = full();
    let noise = [b"Welcome to\n{}\n\xff\n".as_slice(), &full.to_bytes(), b"bye\n"].concat();
    assert_eq!(Inspection::parse(&noise), Ok(full));
    let error = Inspection::parse(b"Welcome to\n").unwrap_err();
    assert_eq!(error.to_string(), "no line with facts");
}

#[test]
fn a_line_that_is_cut_or_names_something_else_is_an_error() {
    let text = full().to_bytes();
    for end in 0..text.len() - 1 {
        assert!(Inspection::parse(&text[..end]).is_err(), "{end}");
    }
    let long = [WORD, b" \"", &vec![b'a'; Inspection::MAX_SIZE], b"\"\n"].concat();
    assert!(Inspection::parse(&long).unwrap_err().to_string().starts_with("EOF"));
    let text = String::from_utf8(text).unwrap().replace("\"git\"", "\"\u{202e}\"");
    let error = Inspection::parse(text.as_bytes()).unwrap_err();
    assert!(error.to_string().starts_with("unknown field `\\u{202e}`"), "{error}");
}

#[test]
fn texts_are_cut_and_printable_and_lists_are_bounded() {
    for odd in ["\u{1}".repeat(2000), "u".repeat(4 << 10), "\u{202e}".repeat(1000)] {
        let mut sent = full();
        sent.lanes.gpg.problem = Some(odd.clone());
        let starter = sent.lanes.gpg.starters[0].clone();
        sent.lanes.gpg.starters = vec![starter; 40];
        let KeyStatus::Present(key) = &mut sent.keys[0].status else { panic!() };
        key.subkeys = vec![key.subkeys[0].clone(); 40];
        key.user_ids = vec![key.user_ids[0].clone(); 40];
        sent.keys = vec![sent.keys[0].clone(); 40];
        // Of a helper that bounds nothing.
        let unbounded = [WORD, b" ", &serde_json::to_vec(&sent).unwrap(), b"\n"].concat();
        let found = Inspection::parse(&unbounded).unwrap();
        let problem = found.lanes.gpg.problem.unwrap();
        assert!(problem.len() <= BOUNDS.text);
        assert_eq!(crate::printable(&problem).to_string(), problem);
        assert_eq!(found.lanes.gpg.starters.len(), BOUNDS.entries);
        assert_eq!(found.keys.len(), Inspection::MOST_KEYS);
        let KeyStatus::Present(key) = &found.keys[0].status else { panic!() };
        assert_eq!(key.subkeys.len(), Inspection::MOST_PARTS);
        assert_eq!(key.user_ids.len(), Inspection::MOST_PARTS);
    }
}

#[test]
fn a_long_text_does_not_make_the_rest_unreadable() {
    let long = "ä%".repeat(Inspection::MAX_SIZE);
    let mut facts = full();
    facts.lanes.ssh.problem = Some(long);
    let read = Inspection::parse(&facts.to_bytes()).unwrap();
    let problem = read.lanes.ssh.problem.unwrap();
    assert!(problem.starts_with("ä%") && problem.len() <= BOUNDS.text, "{}", problem.len());
    assert_eq!((read.keys, read.signature), (facts.keys, facts.signature));
}
