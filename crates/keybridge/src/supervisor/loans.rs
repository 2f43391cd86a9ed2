//! What a bridge lends for a time, on top of its settings.
//!
//! The settings in force include the loans; those that are kept for the time after a kill don't. A loan ends by
//! either of two clocks: one stands still while the host sleeps, and the other can be set back.

use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use keybridge_proto::OperationSet;
use serde::{Deserialize, Serialize};

use super::control::TakenOver;
use super::managed_bridge::ManagedBridge;
use crate::Result;
use crate::config::{Invocation, Options};

/// How often the clock that can be set is looked at.
const LOOK: Duration = Duration::from_secs(30);

/// The loans of a bridge, and what its settings lend without them.
#[derive(Debug, Clone)]
pub(super) struct Loans {
    /// The setting `uses` as it was before.
    before: Option<Vec<String>>,
    /// What is lent by that.
    lent: OperationSet,
    list: Vec<Loan>,
}

#[derive(Debug, Clone, Copy)]
struct Loan {
    uses: OperationSet,
    until: Instant,
    until_by_calendar: SystemTime,
}

/// A loan, as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LoanStatus {
    /// What is lent.
    pub uses: OperationSet,
    /// For how many seconds more.
    pub left: u64,
}

impl Loan {
    fn left(self) -> Duration {
        let by_calendar = self.until_by_calendar.duration_since(SystemTime::now());
        let left = self.until.saturating_duration_since(Instant::now());
        left.min(by_calendar.unwrap_or_default())
    }
}

impl Loans {
    /// The setting without the loans.
    pub(super) const fn before(&self) -> Option<&Vec<String>> {
        self.before.as_ref()
    }

    pub(super) fn status(&self) -> Vec<LoanStatus> {
        let shown = |loan: &Loan| LoanStatus { uses: loan.uses, left: loan.left().as_secs() };
        self.list.iter().map(shown).collect()
    }

    fn uses(&self) -> OperationSet {
        self.list.iter().fold(self.lent, |uses, loan| uses.and(loan.uses))
    }
}

/// The call of `up` that lends these.
fn naming(uses: OperationSet, raises: bool) -> Invocation {
    let words = uses.iter().map(|operation| operation.word().to_owned()).collect();
    let options = Options { uses: Some(words), ..Options::default() };
    Invocation { options, raises, ..Invocation::default() }
}

impl ManagedBridge {
    /// Lends these for a time, too. Another loan of the same is replaced.
    pub(super) async fn lend_for(
        self: &Rc<Self>,
        uses: OperationSet,
        time: Duration,
    ) -> Result<()> {
        let earlier = self.loans();
        let mut loans = earlier.clone().unwrap_or_else(|| self.no_loans());
        loans.list.retain(|loan| loan.uses != uses);
        let (until, until_by_calendar) = (Instant::now() + time, SystemTime::now() + time);
        loans.list.push(Loan { uses, until, until_by_calendar });
        // First, so that what is kept doesn't include them.
        self.set_loans(Some(loans.clone()));
        if let Err(error) = self.up(&naming(loans.uses(), true)).await {
            self.set_loans(earlier);
            return Err(error);
        }
        let bridge = Rc::clone(self);
        tokio::task::spawn_local(async move { bridge.end_loans_in_time().await });
        Ok(())
    }

    /// Applies what the caller of `up` names. Who says what is lent says it for all the time: that ends the
    /// loans.
    pub(super) async fn up_for_good(&self, invocation: &Invocation) -> Result<TakenOver> {
        let taken_over = self.up(invocation).await;
        let named = &invocation.options.uses;
        if named.is_some() && self.loans().is_some() && self.settings().options.uses == *named {
            self.set_loans(None);
            self.keep_settings()?;
            return taken_over.map(|over| TakenOver { status: self.status(), ..over });
        }
        taken_over
    }

    /// What is lent without any.
    fn no_loans(&self) -> Loans {
        let settings = self.settings();
        let lanes = settings.lanes_for(self.target().lane_scope());
        let link = self.link();
        // Of a lane that isn't there nothing is lent, whatever the settings would lend by default.
        let has = |lane| link.as_ref().map_or(lanes.contains(&lane), |link| link.lends(lane));
        let lent = settings.uses().iter().filter(|operation| has(operation.lane())).collect();
        Loans { before: settings.options.uses, lent, list: Vec::new() }
    }

    /// Ends the loans one after the other, while there are any.
    async fn end_loans_in_time(&self) {
        while let Some(mut loans) = self.loans() {
            let next = loans.list.iter().map(|loan| loan.left()).min().unwrap_or_default();
            if !next.is_zero() {
                tokio::time::sleep(next.min(LOOK)).await;
                continue;
            }
            loans.list.retain(|loan| !loan.left().is_zero());
            tracing::info!("a loan has ended");
            let left = loans.uses();
            self.set_loans(Some(loans).filter(|loans| !loans.list.is_empty()));
            // Before anything that can take time, or fail.
            self.operations().lend(self.operations().uses().in_both(left));
            if let Err(error) = self.up(&naming(left, false)).await {
                tracing::warn!(%error, "after a loan");
            }
        }
    }
}
