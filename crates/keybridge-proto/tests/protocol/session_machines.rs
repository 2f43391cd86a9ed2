//! Walks every pair of state and event of the three machines and compares with tables written by hand.

use keybridge_proto::session::{agent, request};
use keybridge_proto::ssh::session as ssh;

/// Columns: events, in the order of [`request_events`]. Rows: states. A dot: no place there.
const REQUEST: &str = "
                  CSC CDS CDP CDC AGO ARC ROE RIN WOK ERR CR- CR+ CCO CER
Disconnected      CON .   .   .   .   .   .   .   .   .   .   .   .   .
ConnectingToAgent .   .   .   .   RDY .   .   .   .   ERR CLO .   .   .
Ready             .   BCM .   .   .   .   .   .   .   ERR CLO .   .   .
BufferingCommand  .   .   BCM SND .   .   .   .   .   ERR CLO .   .   .
BufferingInquire  .   .   BIN SND .   CLI .   .   .   ERR CLO .   .   .
SendingToAgent    .   .   .   .   .   .   .   .   WAI ERR CLO .   .   .
WaitingForAgent   .   .   .   .   .   CLI .   .   .   ERR CLO .   .   .
SendingToClient   .   .   .   .   .   .   RDY BIN CLI ERR CLO .   .   .
Error             .   .   .   .   .   .   .   .   .   .   .   CLO .   .
Closing           .   .   .   .   .   .   .   .   .   .   .   .   DIS FAT
Fatal             .   .   .   .   .   .   .   .   .   .   .   .   .   .
";

/// As above, in the order of [`agent_events`].
const AGENT: &str = "
                  CCR CDR ASC AWO ADC ADR ERR CR- CR+ CCO CER
Disconnected      CON .   .   .   .   .   .   .   .   .   .
ConnectingToAgent .   .   SOC .   .   .   ERR CLO .   .   .
SocketConnected   .   SND .   .   .   .   ERR CLO .   .   .
Ready             .   SND .   .   RDY RDY ERR CLO .   .   .
SendingToAgent    .   .   .   WAI .   .   ERR CLO .   .   .
WaitingForAgent   .   .   .   .   WAI RDY ERR CLO .   .   .
Error             .   .   .   .   .   .   .   .   CLO .   .
Closing           .   .   .   .   .   .   .   .   .   DIS FAT
Fatal             .   .   .   .   .   .   .   .   .   .   .
";

/// As above, in the order of [`ssh_events`].
const SSH: &str = "
                  CCR ASC AUN RBG RAL RRE RSK AWO ABG ACO ERR CR- CR+ CCO CER
Disconnected      CON .   .   .   .   .   .   .   .   .   .   .   .   .   .
ConnectingToAgent .   RDY RDY .   .   .   .   .   .   .   ERR CLO .   .   .
Ready             .   .   .   RRQ .   .   .   .   .   .   ERR CLO .   .   .
ReadingRequest    .   .   .   .   SND SKP .   .   .   .   ERR CLO .   .   .
SkippingRequest   .   .   .   .   .   .   RDY .   .   .   ERR CLO .   .   .
SendingToAgent    .   .   .   .   .   .   .   WAI .   .   ERR CLO .   .   .
WaitingForAgent   .   .   .   .   .   .   .   .   CLI .   ERR CLO .   .   .
SendingToClient   .   .   .   .   .   .   .   .   .   RDY ERR CLO .   .   .
Error             .   .   .   .   .   .   .   .   .   .   .   .   CLO .   .
Closing           .   .   .   .   .   .   .   .   .   .   .   .   .   DIS FAT
Fatal             .   .   .   .   .   .   .   .   .   .   .   .   .   .   .
";

fn request_states() -> [(&'static str, request::State); 11] {
    use request::State as S;
    [
        ("DIS", S::Disconnected),
        ("CON", S::ConnectingToAgent),
        ("RDY", S::Ready),
        ("BCM", S::BufferingCommand),
        ("BIN", S::BufferingInquire),
        ("SND", S::SendingToAgent),
        ("WAI", S::WaitingForAgent),
        ("CLI", S::SendingToClient),
        ("ERR", S::Error),
        ("CLO", S::Closing),
        ("FAT", S::Fatal),
    ]
}

fn request_events() -> [request::Event; 14] {
    use request::Event as E;
    [
        E::ClientSocketConnected,
        E::ClientDataStart,
        E::ClientDataPartial,
        E::ClientDataComplete,
        E::AgentGreetingOk,
        E::AgentResponseComplete,
        E::ResponseOkOrErr,
        E::ResponseInquire,
        E::WriteOk,
        E::ErrorOccurred,
        E::CleanupRequested { had_error: false },
        E::CleanupRequested { had_error: true },
        E::CleanupComplete,
        E::CleanupError,
    ]
}

fn agent_states() -> [(&'static str, agent::State); 9] {
    use agent::State as S;
    [
        ("DIS", S::Disconnected),
        ("CON", S::ConnectingToAgent),
        ("SOC", S::SocketConnected),
        ("RDY", S::Ready),
        ("SND", S::SendingToAgent),
        ("WAI", S::WaitingForAgent),
        ("ERR", S::Error),
        ("CLO", S::Closing),
        ("FAT", S::Fatal),
    ]
}

fn agent_events() -> [agent::Event; 11] {
    use agent::Event as E;
    [
        E::ClientConnectRequested,
        E::ClientDataReceived,
        E::AgentSocketConnected,
        E::AgentWriteOk,
        E::AgentDataChunk,
        E::AgentDataReceived,
        E::ErrorOccurred,
        E::CleanupRequested { had_error: false },
        E::CleanupRequested { had_error: true },
        E::CleanupComplete,
        E::CleanupError,
    ]
}

fn ssh_states() -> [(&'static str, ssh::State); 11] {
    use ssh::State as S;
    [
        ("DIS", S::Disconnected),
        ("CON", S::ConnectingToAgent),
        ("RDY", S::Ready),
        ("RRQ", S::ReadingRequest),
        ("SKP", S::SkippingRequest),
        ("SND", S::SendingToAgent),
        ("WAI", S::WaitingForAgent),
        ("CLI", S::SendingToClient),
        ("ERR", S::Error),
        ("CLO", S::Closing),
        ("FAT", S::Fatal),
    ]
}

fn ssh_events() -> [ssh::Event; 15] {
    use ssh::Event as E;
    [
        E::ClientConnectRequested,
        E::AgentSocketConnected,
        E::AgentUnreachable,
        E::RequestBegun,
        E::RequestAllowed,
        E::RequestRefused,
        E::RequestSkipped,
        E::AgentWriteOk,
        E::AnswerBegun,
        E::AnswerComplete,
        E::ErrorOccurred,
        E::CleanupRequested { had_error: false },
        E::CleanupRequested { had_error: true },
        E::CleanupComplete,
        E::CleanupError,
    ]
}

/// The table's rows: the name of the state, and a cell for each event.
fn rows(table: &str) -> impl Iterator<Item = (&str, Vec<&str>)> {
    table.trim_matches('\n').lines().skip(1).map(|row| {
        let mut cells = row.split_whitespace();
        (cells.next().unwrap(), cells.collect())
    })
}

#[test]
fn every_pair_of_the_request_machine_is_as_in_the_table() {
    let states = request_states();
    assert_eq!(rows(REQUEST).count(), states.len());
    for ((name, cells), (_, state)) in rows(REQUEST).zip(states) {
        assert_eq!(name, format!("{state:?}"));
        assert_eq!(cells.len(), request_events().len(), "{name}");
        for (cell, event) in cells.into_iter().zip(request_events()) {
            let expected = states.iter().find(|(short, _)| *short == cell).map(|(_, state)| *state);
            assert_eq!(expected.is_none(), cell == ".", "{name} {cell}");
            let next = request::transition(state, event);
            assert_eq!(next.ok(), expected, "{name} {event:?}");
            if let Err(invalid) = next {
                assert_eq!(invalid.state, name);
                assert!(format!("{event:?}").starts_with(invalid.event), "{invalid}");
            }
        }
    }
}

#[test]
fn every_pair_of_the_agent_machine_is_as_in_the_table() {
    let states = agent_states();
    assert_eq!(rows(AGENT).count(), states.len());
    for ((name, cells), (_, state)) in rows(AGENT).zip(states) {
        assert_eq!(name, format!("{state:?}"));
        assert_eq!(cells.len(), agent_events().len(), "{name}");
        for (cell, event) in cells.into_iter().zip(agent_events()) {
            let expected = states.iter().find(|(short, _)| *short == cell).map(|(_, state)| *state);
            assert_eq!(expected.is_none(), cell == ".", "{name} {cell}");
            let next = agent::transition(state, event);
            assert_eq!(next.ok(), expected, "{name} {event:?}");
            if let Err(invalid) = next {
                assert_eq!(invalid.state, name);
                assert!(format!("{event:?}").starts_with(invalid.event), "{invalid}");
            }
        }
    }
}

#[test]
fn every_pair_of_the_ssh_machine_is_as_in_the_table() {
    let states = ssh_states();
    assert_eq!(rows(SSH).count(), states.len());
    for ((name, cells), (_, state)) in rows(SSH).zip(states) {
        assert_eq!(name, format!("{state:?}"));
        assert_eq!(cells.len(), ssh_events().len(), "{name}");
        for (cell, event) in cells.into_iter().zip(ssh_events()) {
            let expected = states.iter().find(|(short, _)| *short == cell).map(|(_, state)| *state);
            assert_eq!(expected.is_none(), cell == ".", "{name} {cell}");
            let next = ssh::transition(state, event);
            assert_eq!(next.ok(), expected, "{name} {event:?}");
            if let Err(invalid) = next {
                assert_eq!(invalid.state, name);
                assert!(format!("{event:?}").starts_with(invalid.event), "{invalid}");
            }
        }
    }
}
