//! Calls of Windows that the standard library doesn't have: access for one user alone, the handles of the
//! standard streams, the console, the registry. They are unsafe since they take pointers. Each function here
//! passes pointers to values of its own, which live until the call returns, and is safe for any argument.
#![expect(unsafe_code, reason = "the standard library has no safe calls for these")]

use std::ffi::{OsStr, OsString, c_void};
use std::fs::File;
use std::io;
use std::os::windows::ffi::{OsStrExt, OsStringExt};
use std::os::windows::io::{AsRawHandle, FromRawHandle, IntoRawHandle, OwnedHandle, RawHandle};
use std::path::Path;
use std::ptr::{null, null_mut};

use tokio::net::windows::named_pipe::{NamedPipeServer, ServerOptions};
use windows_sys::Win32::Foundation::{
    ERROR_FILE_NOT_FOUND, ERROR_SUCCESS, HANDLE_FLAG_INHERIT, INVALID_HANDLE_VALUE, LocalFree,
    SetHandleInformation,
};
use windows_sys::Win32::Security::Authorization::{
    ConvertSecurityDescriptorToStringSecurityDescriptorW, ConvertSidToStringSidW,
    ConvertStringSecurityDescriptorToSecurityDescriptorW, GetNamedSecurityInfoW, SDDL_REVISION_1,
    SE_FILE_OBJECT,
};
use windows_sys::Win32::Security::{
    DACL_SECURITY_INFORMATION, GetTokenInformation, SECURITY_ATTRIBUTES, TOKEN_QUERY, TOKEN_USER,
    TokenUser,
};
use windows_sys::Win32::Storage::FileSystem::{
    BY_HANDLE_FILE_INFORMATION, CreateDirectoryW, GetFileInformationByHandle,
};
use windows_sys::Win32::System::Console::{
    CONSOLE_READCONSOLE_CONTROL, CONSOLE_SCREEN_BUFFER_INFO, ENABLE_VIRTUAL_TERMINAL_PROCESSING,
    FlushConsoleInputBuffer, GetConsoleMode, GetConsoleScreenBufferInfo, GetStdHandle,
    ReadConsoleW, STD_ERROR_HANDLE, STD_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
    SetConsoleCtrlHandler, SetConsoleMode, SetStdHandle, WriteConsoleW,
};
use windows_sys::Win32::System::Diagnostics::Debug::{
    SEM_FAILCRITICALERRORS, SEM_NOGPFAULTERRORBOX, SetErrorMode,
};
use windows_sys::Win32::System::Pipes::{NMPWAIT_NOWAIT, WaitNamedPipeW};
use windows_sys::Win32::System::Registry::{
    HKEY_LOCAL_MACHINE, RRF_RT_REG_DWORD, RRF_RT_REG_SZ, RegGetValueW,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, OpenProcessToken};

/// A stream that every process begins with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StandardStream {
    Output,
    Error,
}

/// Creates an instance of a pipe that this user alone can open, from the host. The first one fails if
/// the pipe exists.
pub(super) fn create_private_pipe(path: &Path, is_first: bool) -> io::Result<NamedPipeServer> {
    let access = Descriptor::new()?;
    let mut attributes = access.attributes();
    let mut options = ServerOptions::new();
    options.first_pipe_instance(is_first).reject_remote_clients(true);
    // SAFETY: the attributes and the descriptor that they point to live until the call returns.
    unsafe {
        options.create_with_security_attributes_raw(path, (&raw mut attributes).cast::<c_void>())
    }
}

/// Whether there is a pipe. It isn't opened, which would cost its server an instance.
pub(super) fn pipe_exists(path: &Path) -> bool {
    let path = wide(path.as_os_str());
    // SAFETY: the path ends in zero.
    let is_free = unsafe { WaitNamedPipeW(path.as_ptr(), NMPWAIT_NOWAIT) } != 0;
    // A pipe whose instances are all in use is there too.
    is_free || io::Error::last_os_error().raw_os_error() != Some(ERROR_FILE_NOT_FOUND.cast_signed())
}

/// Creates a folder that this user alone can enter. What is created there is for this user too.
pub(super) fn create_private_folder(path: &Path) -> io::Result<()> {
    let access = Descriptor::new()?;
    let attributes = access.attributes();
    let path = wide(path.as_os_str());
    // SAFETY: the path ends in zero, and the attributes live until the call returns.
    check(unsafe { CreateDirectoryW(path.as_ptr(), &raw const attributes) })
}

/// A security descriptor that Windows has allocated. A new one gives all access to this user, and none to
/// anybody else.
struct Descriptor(*mut c_void);

impl Descriptor {
    fn new() -> io::Result<Self> {
        // Protected (P), so that nothing is inherited; inherited by what is inside (OICI).
        let text = format!("D:P(A;OICI;GA;;;{})", own_sid()?);
        let text = wide(OsStr::new(&text));
        let mut descriptor = null_mut();
        // SAFETY: the text ends in zero, and the descriptor is written before the call returns.
        check(unsafe {
            ConvertStringSecurityDescriptorToSecurityDescriptorW(
                text.as_ptr(),
                SDDL_REVISION_1,
                &raw mut descriptor,
                null_mut(),
            )
        })?;
        Ok(Self(descriptor))
    }

    /// Valid as long as this value.
    fn attributes(&self) -> SECURITY_ATTRIBUTES {
        SECURITY_ATTRIBUTES {
            nLength: size_of_u32::<SECURITY_ATTRIBUTES>(),
            lpSecurityDescriptor: self.0,
            bInheritHandle: 0,
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: Windows has allocated it with `LocalAlloc`, and it is used no more.
        unsafe { LocalFree(self.0) };
    }
}

/// The access list that lets this user alone in, as Windows writes it.
pub(super) fn private_access() -> io::Result<String> {
    access_text(&Descriptor::new()?)
}

/// The access list of a file or a folder, as Windows writes it.
pub(super) fn access_of(path: &Path) -> io::Result<String> {
    let path = wide(path.as_os_str());
    let mut descriptor = null_mut();
    // SAFETY: the path ends in zero, and the descriptor is written before the call returns.
    let result = unsafe {
        GetNamedSecurityInfoW(
            path.as_ptr(),
            SE_FILE_OBJECT,
            DACL_SECURITY_INFORMATION,
            null_mut(),
            null_mut(),
            null_mut(),
            null_mut(),
            &raw mut descriptor,
        )
    };
    if result != ERROR_SUCCESS {
        return Err(io::Error::from_raw_os_error(result.cast_signed()));
    }
    access_text(&Descriptor(descriptor))
}

fn access_text(descriptor: &Descriptor) -> io::Result<String> {
    let mut text = null_mut();
    // SAFETY: the descriptor is valid as long as its owner, and the text is written before the call returns.
    check(unsafe {
        ConvertSecurityDescriptorToStringSecurityDescriptorW(
            descriptor.0,
            SDDL_REVISION_1,
            DACL_SECURITY_INFORMATION,
            &raw mut text,
            null_mut(),
        )
    })?;
    // SAFETY: the call before has allocated it for us.
    unsafe { taken_text(text) }
}

/// The id of this user, as text.
fn own_sid() -> io::Result<String> {
    let mut token = null_mut();
    // SAFETY: the handle is written before the call returns. That of the process needs no closing.
    check(unsafe { OpenProcessToken(GetCurrentProcess(), TOKEN_QUERY, &raw mut token) })?;
    // SAFETY: it was opened just now, and nobody else closes it.
    let token = unsafe { OwnedHandle::from_raw_handle(token) };
    // Of 8 bytes each, so that it is aligned for the structure, and larger than any user's id.
    let mut user = [0_u64; 32];
    let mut size = 0;
    // SAFETY: the buffer has the size that is given, and lives until the call returns.
    check(unsafe {
        GetTokenInformation(
            token.as_raw_handle(),
            TokenUser,
            user.as_mut_ptr().cast(),
            size_of_u32::<[u64; 32]>(),
            &raw mut size,
        )
    })?;
    let mut text = null_mut();
    // SAFETY: the call before has written this structure, whose pointer leads into the same buffer.
    check(unsafe {
        let user = &*user.as_ptr().cast::<TOKEN_USER>();
        ConvertSidToStringSidW(user.User.Sid, &raw mut text)
    })?;
    // SAFETY: the call before has allocated it for us.
    unsafe { taken_text(text) }
}

/// Copies a text and releases it.
///
/// # Safety
/// Windows has allocated it with `LocalAlloc`, it ends in zero, and nobody else uses it.
unsafe fn taken_text(text: *mut u16) -> io::Result<String> {
    let mut units = Vec::new();
    // SAFETY: as the caller says. It is released once, after it was copied.
    unsafe {
        let mut at = text;
        while *at != 0 {
            units.push(*at);
            at = at.add(1);
        }
        LocalFree(text.cast());
    }
    String::from_utf16(&units).map_err(io::Error::other)
}

/// Has children not inherit our standard streams, unless they are given them by name.
pub(super) fn keep_streams_from_children() {
    for stream in [STD_INPUT_HANDLE, STD_OUTPUT_HANDLE, STD_ERROR_HANDLE] {
        // SAFETY: a handle that isn't valid is refused.
        unsafe { SetHandleInformation(GetStdHandle(stream), HANDLE_FLAG_INHERIT, 0) };
    }
}

/// Puts a file in the place of a standard stream, which is closed.
pub(super) fn replace_stream(stream: StandardStream, file: File) -> io::Result<()> {
    let number: STD_HANDLE = match stream {
        StandardStream::Output => STD_OUTPUT_HANDLE,
        StandardStream::Error => STD_ERROR_HANDLE,
    };
    let new = file.into_raw_handle();
    // SAFETY: the standard library asks for the handle at each use, so nobody uses the old one. The new one
    // is open until it is replaced in its turn.
    unsafe {
        let old = GetStdHandle(number);
        check(SetStdHandle(number, new))?;
        let is_shared = |other| other != number && GetStdHandle(other) == old;
        let is_open = !old.is_null() && old != INVALID_HANDLE_VALUE;
        if is_open && !is_shared(STD_OUTPUT_HANDLE) && !is_shared(STD_ERROR_HANDLE) {
            drop(OwnedHandle::from_raw_handle(old));
        }
    }
    Ok(())
}

/// Leaves Ctrl-C to the programs that this process has started.
pub(super) fn ignore_ctrl_c() {
    // SAFETY: without a function the call only sets a flag.
    unsafe { SetConsoleCtrlHandler(None, 1) };
}

/// Has this process end at a fault, without a dialog and without a report.
pub(super) fn forbid_error_reports() {
    // SAFETY: the call sets flags of this process.
    unsafe { SetErrorMode(SEM_FAILCRITICALERRORS | SEM_NOGPFAULTERRORBOX) };
}

/// What tells an open file from others of its volume: its number there.
pub(super) fn file_number(file: &File) -> io::Result<u64> {
    let mut found = BY_HANDLE_FILE_INFORMATION::default();
    // SAFETY: the handle is that of an open file.
    check(unsafe { GetFileInformationByHandle(file.as_raw_handle(), &raw mut found) })?;
    Ok(u64::from(found.nFileIndexHigh) << 32 | u64::from(found.nFileIndexLow))
}

/// The modes of a console.
pub(super) fn console_mode(console: &impl AsRawHandle) -> io::Result<u32> {
    let mut mode = 0;
    // SAFETY: the handle is that of an open file; one that is no console is refused.
    check(unsafe { GetConsoleMode(console.as_raw_handle(), &raw mut mode) })?;
    Ok(mode)
}

/// Sets the modes of a console.
pub(super) fn set_console_mode(console: &impl AsRawHandle, mode: u32) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { SetConsoleMode(console.as_raw_handle(), mode) })
}

/// Has a console act on escape sequences, if it can.
pub(super) fn show_control_sequences(console: &impl AsRawHandle) {
    if let Ok(mode) = console_mode(console) {
        let _ = set_console_mode(console, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING);
    }
}

/// Drops what was typed.
pub(super) fn flush_console(console: &File) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { FlushConsoleInputBuffer(console.as_raw_handle()) })
}

/// Reads a line, or a part of it. Ctrl-C ends it, and is its last character.
pub(super) fn read_console(console: &File, units: &mut [u16]) -> io::Result<usize> {
    const CTRL_C: u32 = 1 << 3;
    let control = CONSOLE_READCONSOLE_CONTROL {
        nLength: size_of_u32::<CONSOLE_READCONSOLE_CONTROL>(),
        nInitialChars: 0,
        dwCtrlWakeupMask: CTRL_C,
        dwControlKeyState: 0,
    };
    let room = u32::try_from(units.len()).unwrap_or(u32::MAX);
    let mut count = 0;
    // SAFETY: the buffer has room for so many units, and lives until the call returns.
    check(unsafe {
        ReadConsoleW(
            console.as_raw_handle(),
            units.as_mut_ptr().cast(),
            room,
            &raw mut count,
            &raw const control,
        )
    })?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Shows a text.
pub(super) fn write_console(console: &File, text: &str) -> io::Result<()> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let size = u32::try_from(units.len()).unwrap_or(u32::MAX);
    let mut written = 0;
    // SAFETY: the buffer has so many units, and lives until the call returns.
    check(unsafe {
        WriteConsoleW(console.as_raw_handle(), units.as_ptr(), size, &raw mut written, null())
    })
}

/// The columns and rows of a console's window.
pub(super) fn console_size(console: &impl AsRawHandle) -> io::Result<(u16, u16)> {
    let mut found = CONSOLE_SCREEN_BUFFER_INFO::default();
    let handle: RawHandle = console.as_raw_handle();
    // SAFETY: the handle is that of an open stream; one that is no console is refused.
    check(unsafe { GetConsoleScreenBufferInfo(handle, &raw mut found) })?;
    let window = found.srWindow;
    let size = |first: i16, last: i16| u16::try_from(last.saturating_sub(first)).map(|at| at + 1);
    let columns = size(window.Left, window.Right).map_err(io::Error::other)?;
    let rows = size(window.Top, window.Bottom).map_err(io::Error::other)?;
    Ok((columns, rows))
}

/// A text of the registry, of the machine's part.
pub(super) fn registry_text(key: &str, name: &str) -> Option<OsString> {
    // A path has at most this many units.
    let mut units = [0_u16; 1024];
    let mut size = size_of_u32::<[u16; 1024]>();
    let (key, name) = (wide(OsStr::new(key)), wide(OsStr::new(name)));
    // SAFETY: the names end in zero, and the buffer has the size that is given.
    let result = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            name.as_ptr(),
            RRF_RT_REG_SZ,
            null_mut(),
            units.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    let text = units.split(|unit| *unit == 0).next().filter(|text| !text.is_empty());
    text.filter(|_| result == ERROR_SUCCESS).map(OsString::from_wide)
}

/// A number of the registry, of the machine's part.
pub(super) fn registry_number(key: &str, name: &str) -> Option<u32> {
    let mut number = 0_u32;
    let mut size = size_of_u32::<u32>();
    let (key, name) = (wide(OsStr::new(key)), wide(OsStr::new(name)));
    // SAFETY: the names end in zero, and the number has the size that is given.
    let result = unsafe {
        RegGetValueW(
            HKEY_LOCAL_MACHINE,
            key.as_ptr(),
            name.as_ptr(),
            RRF_RT_REG_DWORD,
            null_mut(),
            (&raw mut number).cast(),
            &raw mut size,
        )
    };
    (result == ERROR_SUCCESS).then_some(number)
}

/// A text in UTF-16, with a zero at its end.
fn wide(text: &OsStr) -> Vec<u16> {
    text.encode_wide().chain([0]).collect()
}

fn size_of_u32<T>() -> u32 {
    u32::try_from(size_of::<T>()).unwrap_or(u32::MAX)
}

/// The result of a call that returns zero when it fails.
fn check(result: i32) -> io::Result<()> {
    if result == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
