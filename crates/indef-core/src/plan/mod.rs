//! A plan: every chunk with its decision, its reason, its cost and its gain.
//!
//! [`plan_file`] decides about one file, [`truncate_on`] and [`limit`] about all of them together, [`mod@format`] is the
//! file in which a plan is kept until it is run.
//!
//! Whatever the policy:
//! - chunks are disjoint and ordered, and lie on block boundaries;
//! - a range that is one fragment already is never moved;
//! - the file is predicted not to have more fragments afterwards ([`predicted_fragments`]).

mod belief;
mod chunk;
mod decide;
mod entries;
mod facts;
mod file_plan;
pub mod format;
mod limit;
mod options;
mod path;
mod payback;
mod policy;
mod ranking;
mod reclaim;
mod safety;
mod shared;
mod truncate;
mod windows;

pub use belief::{Counts, Credibility, Given, Lasting, PRIOR_READS, serves_days};
pub use chunk::{Chunk, Decision, Edges, SharedMove};
pub use facts::FileFacts;
pub use file_plan::{BirthTime, FilePlan, MOST_NAMED, PlanTotals, split_at_root};
pub use limit::{Limited, limit};
pub use options::{OptionError, ParsePolicyError, PlanOptions, Policy, Weight, nothing_to_gain};
pub use path::PathJson;
pub use payback::{Beliefs, Paying, SavedBy, Terms, keep_paying};
pub use policy::plan_file;
pub use ranking::{Moved, Ranking};
pub use reclaim::{LEAST_COMPRESSED, RECLAIM_RATIO, keeps_extent, reclaim_file};
pub use safety::predicted_fragments;
pub use shared::{SharedWindow, share};
pub use truncate::truncate_on;

#[cfg(test)]
mod promises;
#[cfg(test)]
mod tests;
