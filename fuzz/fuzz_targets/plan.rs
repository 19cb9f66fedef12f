//! The reader of plan files: it never panics, every error is one line, and a plan that it takes keeps
//! its invariants and comes back as it was when written again.

#![no_main]

use indef_core::plan::format::{PlanReader, PlanWriter};
use indef_core::plan::{FilePlan, PlanOptions, limit};
use libfuzzer_sys::fuzz_target;
use units::Bytes;

fn read(text: &[u8]) -> Option<(PlanOptions, Vec<FilePlan>)> {
    let one_line = |error: &dyn std::error::Error| {
        assert!(!error.to_string().chars().any(char::is_control), "{error}");
    };
    let reader = PlanReader::new(text)
        .map_err(|error| one_line(&error))
        .ok()?;
    let options = reader.options().clone();
    let files: Result<Vec<_>, _> = reader.collect();
    Some((options, files.map_err(|error| one_line(&error)).ok()?))
}

fuzz_target!(|text: &[u8]| {
    let Some((options, mut files)) = read(text) else {
        return;
    };
    for file in &files {
        let runs = file.runs();
        assert!(runs.windows(2).all(|w| w[0].end() < w[1].start));
        let room: Bytes = runs.iter().map(|run| run.len).sum();
        assert!(file.cost() <= room);
    }
    let mut writer = PlanWriter::new(Vec::new(), &options).unwrap();
    for file in &files {
        writer.write(file).unwrap();
    }
    let (again, _) = writer.finish().unwrap();
    assert_eq!(read(&again).unwrap(), (options.clone(), files.clone()));
    let budget = Bytes::mib(1);
    limit(
        &mut files,
        &PlanOptions {
            budget: Some(budget),
            ..options
        },
    );
    assert!(files.iter().map(FilePlan::cost).sum::<Bytes>() <= budget);
});
