//! A helper that is not ours: its link ends or is held back, with a line in the log and a state; the
//! bridge stays small, and another one doesn't notice.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;
use serde_json::Value;

use keybridge_lab::within;

use crate::faults::processes;
use crate::lab::{
    HARMFUL, Lab, PATIENCE, allocated_by, descriptors_of, fake_helper, is_alive, local,
    make_private, output, run, run_with, signal, text,
};
use crate::side_by_side;

const MIB: u64 = 1024 * 1024;

/// What a bridge may grow by: 4 MiB that streams have in flight, as much as is read ahead, and room.
const MOST_MEMORY: u64 = 16 * MIB;

/// 256 sessions, and what a bridge has open at rest.
const MOST_DESCRIPTORS: usize = 256 + 64;

/// How many signatures another bridge makes while this one is flooded.
const SIGNATURES: usize = 5;

/// So much of a flood has to come before it counts as one: as much as a pipe holds.
const FLOOD: u64 = 64 * 1024;

/// What a log may grow to while a helper complains without end.
const MOST_LOG: u64 = MIB / 2;

/// What the helper does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Misdeed {
    HalfAFrame,
    DataWithoutCredit,
    Pings,
    Complaints,
    ALaneThatIsOff,
    TenThousandStreams,
}

const MISDEEDS: [Misdeed; 6] = [
    Misdeed::HalfAFrame,
    Misdeed::DataWithoutCredit,
    Misdeed::Pings,
    Misdeed::Complaints,
    Misdeed::ALaneThatIsOff,
    Misdeed::TenThousandStreams,
];

impl Misdeed {
    /// What the helper's program calls it.
    fn name(self) -> &'static str {
        match self {
            Self::HalfAFrame => "half a frame",
            Self::DataWithoutCredit => "data without credit",
            Self::Pings => "pings",
            Self::Complaints => "complaints",
            Self::ALaneThatIsOff => "a lane that is off",
            Self::TenThousandStreams => "ten thousand streams",
        }
    }

    /// What becomes of the link, and words of which one stands in the log, if anything does.
    fn consequence(self) -> (Fate, Option<[&'static str; 2]>) {
        match self {
            Self::HalfAFrame => (Fate::Ends, Some(["silen", "nothing came"])),
            Self::DataWithoutCredit => (Fate::Ends, Some(["protocol", "credit"])),
            // Each is answered when the answer before it has gone, and none is worth a line.
            Self::Pings => (Fate::EndsOrIsHeldBack, None),
            Self::Complaints => (Fate::EndsOrIsHeldBack, Some(["in the target", "complain"])),
            Self::ALaneThatIsOff => (Fate::EndsOrIsHeldBack, Some(["lane", "ssh"])),
            Self::TenThousandStreams => (Fate::EndsOrIsHeldBack, Some(["refusals", "streams"])),
        }
    }
}

/// What becomes of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It ends.
    Ends,
    /// It may end, or go on and be held back.
    EndsOrIsHeldBack,
}

/// A host with an honest bridge and one whose helper is not ours.
struct Hostile {
    lab: Lab,
    home: PathBuf,
}

impl Hostile {
    fn new(fault: &str) -> Self {
        let lab = Lab::with_key();
        let home = lab.at("hostile");
        make_private(&home);
        let trigger = lab.at("trigger");
        let words = [("TRIGGER", trigger.to_str().unwrap()), ("FAULT", fault)];
        let program = fake_helper(&lab, HARMFUL, &words);
        let hostile = Self { lab, home };
        let honest = local(hostile.lab.target.path());
        run(&mut hostile.keybridge(&["up", &honest]));
        // A cache of its own: one that all share has one helper in it.
        let cache = hostile.lab.at("hostile-cache");
        make_private(&cache);
        let program = program.to_str().unwrap();
        let mut up = hostile.keybridge(&["up", &local(&hostile.home), "--lanes", "gpg"]);
        run(up.args(["--helper-program", program]).env("XDG_CACHE_HOME", cache));
        assert_eq!(hostile.status()["state"], "ready");
        hostile
    }

    fn keybridge(&self, words: &[&str]) -> Command {
        let mut command = self.lab.keybridge();
        command.env("KEYBRIDGE_STATE", self.lab.at("state")).args(words);
        command
    }

    /// Lets the helper do what it should not.
    fn strike(&self) {
        fs::write(self.lab.at("trigger"), "").unwrap();
    }

    fn status(&self) -> Value {
        let status = run(&mut self.keybridge(&["status", "--json", &local(&self.home)]));
        let status: Value = serde_json::from_slice(&status).unwrap();
        status["bridges"][0].clone()
    }

    fn log(&self) -> String {
        text(&run(&mut self.keybridge(&["logs", &local(&self.home)])))
    }

    /// A signature over the honest bridge.
    fn others_do_not_notice(&self) {
        run_with(&mut self.lab.target.gpg(["--detach-sign"]), b"words");
    }

    /// Waits until something is so. A failure shows what there is to see.
    #[track_caller]
    fn eventually(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(within(PATIENCE, is_so), "waited in vain: {what}\n{}", self.describe());
    }

    /// The status and the end of the log, for the text of a failure.
    fn describe(&self) -> String {
        let said = |words: &[&str]| {
            let ended = output(&mut self.keybridge(words));
            text(&ended.stdout) + &text(&ended.stderr)
        };
        let home = local(&self.home);
        let log = said(&["logs", &home]);
        let lines: Vec<&str> = log.lines().collect();
        let end = lines[lines.len().saturating_sub(15)..].join("\n");
        format!("{}{end}", said(&["status", &home]))
    }
}

impl Drop for Hostile {
    fn drop(&mut self) {
        // The helper of a test is not one that goes when it is told to.
        for pid in processes::with_setting("KEYBRIDGE_STATE", &self.lab.at("state")) {
            signal(pid, Signal::KILL);
        }
    }
}

/// How many bytes a process has read so far.
fn read_by(pid: u32) -> u64 {
    let counts = fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    counts.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[test]
fn a_helper_that_misbehaves_harms_its_own_link_alone() {
    side_by_side(MISDEEDS, |misdeed| {
        let (fate, words) = misdeed.consequence();
        let hostile = Hostile::new(misdeed.name());
        let pid = u32::try_from(hostile.status()["pid"].as_u64().unwrap()).unwrap();
        let (at_rest, read) = (allocated_by(pid), read_by(pid));
        let logged = hostile.log().len();
        hostile.strike();
        let news = || {
            let log = hostile.log();
            log[logged.min(log.len())..].to_owned()
        };
        match words {
            Some(words) => hostile.eventually("there is word of it in the log", || {
                words.iter().any(|word| news().contains(word))
            }),
            None => hostile.eventually("the flood comes", || read_by(pid) > read + FLOOD),
        }
        let mut most = 0;
        for _ in 0..SIGNATURES {
            hostile.others_do_not_notice();
            assert!(is_alive(pid), "the bridge's process has ended\n{}", hostile.describe());
            most = most.max(allocated_by(pid).saturating_sub(at_rest));
            let open = descriptors_of(pid);
            assert!(open < MOST_DESCRIPTORS, "{open} descriptors");
        }
        println!("{misdeed:?}: at most {} KiB more", most / 1024);
        assert!(most < MOST_MEMORY, "it grew by {} KiB", most / 1024);

        let is_told = |status: &Value| {
            let has_reason = status["reason"].as_str().is_some_and(|reason| !reason.is_empty());
            has_reason && (status["state"] == "waiting" || status["state"] == "failed")
        };
        match fate {
            // The next link is there in a tenth of a second, and a look at the state can miss that.
            Fate::Ends => hostile.eventually("the link ends", || {
                let status = hostile.status();
                is_told(&status) || status["reconnects"] != 0
            }),
            Fate::EndsOrIsHeldBack => {
                let status = hostile.status();
                let goes_on = status["state"] == "ready";
                assert!(goes_on || is_told(&status), "no reason: {status}\n{}", hostile.describe());
            }
        }
        if words.is_none() {
            // Thousands came meanwhile.
            assert!(news().lines().count() < 20, "{}", hostile.describe());
        }
        let size = u64::try_from(hostile.log().len()).unwrap();
        assert!(size < MOST_LOG, "the log has {size} bytes");

        // One that doesn't end may be an error of `down`; the bridge is gone all the same.
        output(&mut hostile.keybridge(&["down", &local(&hostile.home)]));
        hostile.others_do_not_notice();
        run(&mut hostile.keybridge(&["down", "--all"]));
        let left = || processes::of_bridges(&hostile.lab.at("state"));
        hostile.eventually("its processes have ended", || left().is_empty());
    });
}
