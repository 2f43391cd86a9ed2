//! What was measured, and what is made of it.
//!
//! A row is one subject, measured in rounds that take turns with those of all others, so that a busy
//! machine is busy for all alike. A ratio is taken in each round, and its median is what counts.

use crate::subjects::OURS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Micros,
    Millis,
    MibPerSecond,
    Mib,
}

impl Unit {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Micros => "µs",
            Self::Millis => "ms",
            Self::MibPerSecond => "MiB/s",
            Self::Mib => "MiB",
        }
    }
}

/// One thing that was measured of several subjects, or in several states of ours.
#[derive(Debug)]
pub(crate) struct Measurement {
    /// Place and what: `docker.round-trip`.
    pub(crate) id: String,
    pub(crate) title: String,
    pub(crate) unit: Unit,
    pub(crate) rows: Vec<Row>,
}

impl Measurement {
    pub(crate) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }

    /// What ours takes of what another subject does.
    pub(crate) fn ours_to(&self, other: &Row) -> Option<Ratio> {
        let ours = self.row(OURS).filter(|ours| ours.name != other.name)?;
        Ratio::of(&ours.medians(), &other.medians())
    }
}

/// What was measured of one subject.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// The samples of each round.
    pub(crate) rounds: Vec<Vec<f64>>,
}

impl Row {
    /// The median of each round.
    pub(crate) fn medians(&self) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| quantile(round, 50)).collect()
    }

    /// The median of the rounds' medians.
    pub(crate) fn p50(&self) -> f64 {
        quantile(&self.medians(), 50).unwrap_or(f64::NAN)
    }
}

/// A ratio of two subjects, and how steady it was.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ratio {
    pub(crate) median: f64,
    /// Half of the rounds are between these two.
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Ratio {
    /// Of the medians of each round.
    fn of(top: &[f64], bottom: &[f64]) -> Option<Self> {
        let ratios: Vec<f64> = top.iter().zip(bottom).map(|(top, bottom)| top / bottom).collect();
        Some(Self {
            median: quantile(&ratios, 50)?,
            low: quantile(&ratios, 25)?,
            high: quantile(&ratios, 75)?,
        })
    }
}

/// The value below which that part of the samples is, in hundredths; none without samples.
fn quantile(samples: &[f64], hundredths: usize) -> Option<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = hundredths.min(100) * sorted.len().checked_sub(1)?;
    let (below, above) = (sorted.get(at / 100)?, sorted.get(at.div_ceil(100))?);
    Some(below + (above - below) * (at % 100) as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_lies_between_its_neighbours() {
        assert_eq!(quantile(&[], 50), None);
        assert_eq!(quantile(&[3.0], 99), Some(3.0));
        assert_eq!(quantile(&[4.0, 1.0, 3.0, 2.0], 50), Some(2.5));
        assert_eq!(quantile(&[1.0, 2.0, 3.0, 4.0, 5.0], 100), Some(5.0));
    }

    #[test]
    fn a_ratio_is_taken_in_each_round() {
        // A machine that is ten times slower in one round changes no ratio.
        let ratio = Ratio::of(&[2.0, 20.0, 2.0], &[1.0, 10.0, 1.0]).map(|ratio| ratio.median);
        assert_eq!(ratio, Some(2.0));
    }
}
