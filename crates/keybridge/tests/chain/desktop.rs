//! Questions as notifications of a real desktop: `notify-send`, a bus of its own, and dunst under Xvfb.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal};

use crate::git_lane::Work;
use crate::lab::{Lab, command, eventually, output, program, text, write_program};
use crate::questions::{SIGNED, is_refused, while_signing};
use crate::settings::Scene;

/// A desktop, as long as it lives.
struct Desktop<'a> {
    lab: &'a Lab,
    display: String,
    running: Vec<Child>,
}

impl<'a> Desktop<'a> {
    fn new(lab: &'a Lab) -> Self {
        // It is found by the environment, and not started by us.
        program("notify-send");
        // Who presses a button: dunst lets a program of the user's choose from a list of them.
        let pick = lab.at("bin/pick");
        write_program(&pick, format!("#!/bin/sh\ngrep -m1 -f {}\n", lab.at("button").display()));
        lab.file("home/dunstrc", format!("[global]\ndmenu = {}\n", pick.display()));
        let mut desktop = Self { lab, display: String::new(), running: Vec::new() };
        let address = format!("--address={}", desktop.bus());
        let bus = ["--session", "--nofork", "--nopidfile", "--print-address", &address];
        desktop.start("dbus-daemon", &bus);
        let number = desktop.start("Xvfb", &["-displayfd", "1", "-screen", "0", "640x480x24"]);
        desktop.display = format!(":{}", number.trim());
        let settings = lab.at("home/dunstrc").display().to_string();
        let mut dunst = desktop.command("dunst");
        let dunst = dunst.args(["-conf", &settings]).stderr(Stdio::null()).spawn().unwrap();
        desktop.running.push(dunst);
        eventually("dunst answers", || desktop.shown() == Some(0));
        desktop
    }

    fn bus(&self) -> String {
        format!("unix:path={}", self.lab.at("run/bus").display())
    }

    fn command(&self, name: &str) -> Command {
        let mut command = command(name);
        command.env("HOME", self.lab.at("home")).env("DISPLAY", &self.display);
        command.env("DBUS_SESSION_BUS_ADDRESS", self.bus()).stdin(Stdio::null());
        command
    }

    /// Starts a program that says on a line that it is ready; gives back the line.
    fn start(&mut self, name: &str, words: &[&str]) -> String {
        let mut program = self.command(name);
        program.args(words).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = program.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        self.running.push(child);
        line
    }

    /// How many notifications are shown.
    fn shown(&self) -> Option<u32> {
        let counted = output(self.command("dunstctl").args(["count", "displayed"]));
        text(&counted.stdout).trim().parse().ok()
    }

    /// Presses a button of the one that is shown, once it is.
    fn press(&self, button: &str) {
        eventually("a notification is shown", || self.shown() == Some(1));
        self.lab.file("button", format!("^#{button} "));
        let pressed = output(self.command("dunstctl").args(["action", "0"]));
        assert!(pressed.status.success(), "{}", text(&pressed.stderr));
    }
}

impl Drop for Desktop<'_> {
    fn drop(&mut self) {
        for child in self.running.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
#[cfg_attr(not(feature = "root-tests"), ignore = "needs a desktop, which scripts/test installs")]
fn the_buttons_of_a_notification_answer_and_it_goes_with_its_question() {
    let scene = Scene::new();
    let desktop = Desktop::new(&scene.lab);
    scene.up(&["--uses", "commit", "--ask", "commit", "--ask-by", "notification"]);
    let work = Work::new(&scene.lab);
    let signed = while_signing(&work, "one", || desktop.press("Once"));
    assert!(signed.status.success(), "{}", text(&signed.stderr));
    let mut git = work.command(&scene.lab.target);
    git.args(SIGNED).arg("two").stdin(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let mut client = git.spawn().unwrap();
    eventually("the next one is shown", || desktop.shown() == Some(1));
    rustix::process::kill_process_group(Pid::from_child(&client), Signal::TERM).unwrap();
    client.wait().unwrap();
    eventually("it is closed", || desktop.shown() == Some(0));
    let refused = while_signing(&work, "three", || desktop.press("No"));
    is_refused(&refused, "a person said no");
}
