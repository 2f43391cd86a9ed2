//! Walks every pair of state and event of the four machines and compares with tables written by hand.

use keybridge_proto::session::{Machine, agent, request};
use keybridge_proto::ssh::{relay, session as ssh};

/// Columns: events, in the order of [`request_events`]. Rows: states. A dot: invalid there.
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
Ready             .   SND .   .   RDY .   ERR CLO .   .   .
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

/// As above, in the order of [`relay_events`].
const RELAY: &str = "
                  CSC SOP AUN ALO ERR CR- CR+ CCO CER
Disconnected      CON .   .   .   .   .   .   .   .
ConnectingToAgent .   REL REF .   ERR CLO .   .   .
Relaying          .   .   .   REF ERR CLO .   .   .
Refusing          .   .   .   .   ERR CLO .   .   .
Error             .   .   .   .   .   .   CLO .   .
Closing           .   .   .   .   .   .   .   DIS FAT
Fatal             .   .   .   .   .   .   .   .   .
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

fn relay_states() -> [(&'static str, relay::State); 7] {
    use relay::State as S;
    [
        ("DIS", S::Disconnected),
        ("CON", S::ConnectingToAgent),
        ("REL", S::Relaying),
        ("REF", S::Refusing),
        ("ERR", S::Error),
        ("CLO", S::Closing),
        ("FAT", S::Fatal),
    ]
}

fn relay_events() -> [relay::Event; 9] {
    use relay::Event as E;
    [
        E::ClientSocketConnected,
        E::StreamOpened,
        E::AgentUnreachable,
        E::AgentLost,
        E::ErrorOccurred,
        E::CleanupRequested { had_error: false },
        E::CleanupRequested { had_error: true },
        E::CleanupComplete,
        E::CleanupError,
    ]
}

/// Compares every pair of state and event with a table: a row for each state, a cell for each event, with
/// the short name of the state that follows or a dot.
fn check<M: Machine>(table: &str, states: &[(&str, M)], events: &[M::Event]) {
    let rows = table.trim_matches('\n').lines().skip(1);
    assert_eq!(rows.clone().count(), states.len());
    for (row, (_, state)) in rows.zip(states) {
        let mut cells = row.split_whitespace();
        assert_eq!(cells.next().unwrap(), format!("{state:?}"));
        let cells: Vec<_> = cells.collect();
        assert_eq!(cells.len(), events.len(), "{row}");
        for (cell, event) in cells.iter().zip(events) {
            let expected = states.iter().find(|(short, _)| short == cell).map(|(_, next)| *next);
            assert_eq!(expected.is_none(), *cell == ".", "{state:?} {cell}");
            let next = state.next(*event);
            assert_eq!(next.clone().ok(), expected, "{state:?} {event:?}");
            if let Err(invalid) = next {
                let text = format!("{event:?} is invalid in state {state:?}");
                assert_eq!(invalid.to_string(), text);
            }
        }
        // The machine takes no event that the table has no column for.
        let taken = cells.iter().filter(|cell| **cell != ".").count();
        assert_eq!(state.transitions().len(), taken, "{state:?}");
        assert_eq!(state.is_live(), state.next(M::FAILS.0).is_ok(), "{state:?}");
    }
}

#[test]
fn every_pair_of_the_request_machine_is_as_in_the_table() {
    check(REQUEST, &request_states(), &request_events());
}

#[test]
fn every_pair_of_the_agent_machine_is_as_in_the_table() {
    check(AGENT, &agent_states(), &agent_events());
}

#[test]
fn every_pair_of_the_ssh_machine_is_as_in_the_table() {
    check(SSH, &ssh_states(), &ssh_events());
}

#[test]
fn every_pair_of_the_relay_machine_is_as_in_the_table() {
    check(RELAY, &relay_states(), &relay_events());
}
