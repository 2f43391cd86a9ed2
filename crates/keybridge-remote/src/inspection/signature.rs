//! A real signature, by way of whatever agent gpg finds.

use std::io;
use std::time::{Duration, Instant};

use keybridge_link::ProgramOutput;
use keybridge_proto::inspection::SignatureOutcome;
use keybridge_proto::{last_line, printable};
use tokio::time::timeout;

use super::public_keys::{READ_ONLY, has_keyring};
use crate::subprocess::run_with_input;
use crate::{Gnupg, OpenPgpKeyId};

/// How long signing may take: a link to a far host, and no person.
const SIGN_TIME: Duration = Duration::from_secs(4);

/// What is signed.
const TEXT: &[u8] = b"keybridge\n";

/// A signature that wasn't tried.
pub(super) fn failed(key: &OpenPgpKeyId, reason: &str) -> SignatureOutcome {
    SignatureOutcome { fingerprint: key.to_string(), result: Err(reason.to_owned()) }
}

/// Signs with this key, and verifies the signature.
pub(super) async fn make(gnupg: &Gnupg, key: &OpenPgpKeyId) -> SignatureOutcome {
    if !has_keyring(gnupg) {
        return failed(key, "there is no public key in the target");
    }
    let start = Instant::now();
    let result = match timeout(SIGN_TIME, sign(gnupg, key)).await {
        Ok(Ok(signed)) => {
            let time = start.elapsed();
            match timeout(super::PART_TIME, verify(gnupg, &signed)).await {
                Ok(result) => result.map(|()| time),
                Err(_) => Err("gpg doesn't verify its signature in time".to_owned()),
            }
        }
        Ok(Err(reason)) => Err(reason),
        Err(_) => Err(format!("gpg didn't sign within {} s", SIGN_TIME.as_secs())),
    };
    SignatureOutcome { fingerprint: key.to_string(), result }
}

/// The options of the user's gpg.conf hold, as for every other signature.
async fn sign(gnupg: &Gnupg, key: &OpenPgpKeyId) -> Result<Vec<u8>, String> {
    let key = key.to_string();
    let arguments = ["--local-user", &key, "--output", "-", "--sign"];
    let output = gpg(gnupg, &arguments, TEXT).await?;
    if output.status.success() { Ok(output.stdout) } else { Err(reason(&output)) }
}

async fn verify(gnupg: &Gnupg, signed: &[u8]) -> Result<(), String> {
    let output = gpg(gnupg, &["--status-fd", "1", "--verify"], signed).await?;
    let mut status = output.stdout.split(|&byte| byte == b'\n');
    if output.status.success() && status.any(|line| line.starts_with(b"[GNUPG:] VALIDSIG ")) {
        return Ok(());
    }
    Err(format!("the signature is not valid: {}", reason(&output)))
}

async fn gpg(gnupg: &Gnupg, arguments: &[&str], input: &[u8]) -> Result<ProgramOutput, String> {
    let mut gpg = gnupg.gpg();
    // The trust in a key makes no difference here, and a database of it would be created.
    gpg.args(READ_ONLY).args(["--trust-model", "always"]).args(arguments);
    run_with_input(&mut gpg, input).await.map_err(|error: io::Error| format!("gpg: {error}"))
}

/// gpg's last line.
fn reason(output: &ProgramOutput) -> String {
    match last_line(&output.stderr) {
        b"" => format!("gpg: {}", output.status),
        line => printable(line).to_string(),
    }
}
