//! A socat in a container that listens, and one on the host at the other end of `docker exec -i`, as recipes
//! have it. The pair carries one connection; a loop starts it anew for the next one.

use std::fs;
use std::path::{Path, PathBuf};

use keybridge_lab::write_program;

use crate::error::{Context, Error, Result};
use crate::lab::{Container, Lab, Running, output};

/// Starts the loop, which leads from a path in the container to a socket.
pub(crate) fn pair(lab: &Lab, container: &Container, path: &str, socket: &Path) -> Result<Running> {
    let (socat, name) = (portable_socat(lab, container)?, &container.name);
    let (listen, around) = (lab.at(&format!("{name}-listen")), lab.at(&format!("{name}-pair")));
    write_program(
        &listen,
        format!("#!/bin/sh\nexec {socat} UNIX-LISTEN:{path},unlink-early STDIO\n"),
    );
    write_program(
        &around,
        format!(
            "#!/bin/sh\n\
             trap 'kill $pair; exit 0' TERM\n\
             while :; do\n\
             socat EXEC:'docker exec -i {name} {}' UNIX-CONNECT:{} 2>/dev/null & pair=$!\n\
             wait $pair\n\
             done\n",
            listen.display(),
            socket.display()
        ),
    );
    Running::start(&mut lab.command(around))
}

/// This machine's socat with its libraries, as a command that runs in any container: the image has
/// none, and the container no network.
fn portable_socat(lab: &Lab, container: &Container) -> Result<String> {
    let folder = lab.make_folder(&format!("{}-socat", container.name))?;
    let path = output(lab.command("sh").args(["-c", "command -v socat"]))?;
    let path = PathBuf::from(path.trim());
    let copy = |from: &Path| -> Result<PathBuf> {
        let name = from.file_name().ok_or_else(|| Error::new("a file without a name"))?;
        let to = folder.join(name);
        fs::copy(from, &to).while_doing(from.display())?;
        Ok(to)
    };
    let program = copy(&path)?;
    let needed = output(lab.command("ldd").arg(&path))?;
    let mut loader = None;
    for word in needed.split_whitespace().filter(|word| word.starts_with('/')) {
        let library = copy(Path::new(word))?;
        if word.contains("/ld-linux") {
            loader = Some(library);
        }
    }
    let loader = loader.ok_or_else(|| Error::new("ldd names no loader for socat"))?;
    let (loader, folder, program) = (loader.display(), folder.display(), program.display());
    Ok(format!("{loader} --library-path {folder} {program}"))
}
