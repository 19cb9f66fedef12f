//! FragPicker as published, written anew, compared with ours.

mod analysis;
mod choice;
