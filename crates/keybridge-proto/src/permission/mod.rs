//! What is allowed of that which is lent: rules of the user's, and questions to a person.
//!
//! Each operation is described by a [`Wanted`]: what the host knows of it, and nothing that a target
//! claims. The [`Rules`] refuse it, allow it, or have a person asked. A question waits for a minute; its
//! answer counts for one operation, or for a while. All sessions of a bridge share this, by way of
//! [`Operations`](crate::session::Operations). Time is an argument.

mod questions;
#[cfg(test)]
mod questions_tests;
mod rules;
mod wanted;

pub use questions::{AnswerError, AskedBy, PersonsWord, Question};
pub(crate) use questions::{Decision, Permissions};
pub use rules::{BadRule, Limit, LoginRule, Rules};
pub use wanted::{Decided, KeyName, Person, Refusal, Subject, Wanted};
